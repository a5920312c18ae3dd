"""`./spark-submit.sh pipeline`: all that is done on a schedule, in order, and a summary."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jobs.runtime.anomalies import anomalies
from jobs.runtime.decode import decode
from jobs.runtime.history import history
from jobs.runtime.ingest import ingest
from jobs.runtime.lag import lag
from jobs.runtime.notify import notify
from jobs.runtime.report import report
from jobs.runtime.runner import run_job
from jobs.runtime.summary import show_summary
from jobs.runtime.validate import validate
from lakehouse.errors import SourceError

if TYPE_CHECKING:
    from jobs.runtime.run import Run


def pipeline(run: Run) -> None:
    """Take the data all the way, from its source to the last table."""
    ingest(run)
    decode(run)
    history(run)
    unanswered = _lag(run)
    anomalies(run)
    notify(run)
    validate(run)
    report(run)
    with run.step("summary"):
        show_summary(run)
    if unanswered is not None:
        raise SourceError(f"lag was left out, all else was done. {unanswered}")


def _lag(run: Run) -> SourceError | None:
    """Sample the lag; give why not, if the cluster has stopped answering.

    Anomalies follow from what was read, and matter then more than ever.
    """
    try:
        lag(run)
    except SourceError as error:
        run.say("lag: left out, the cluster gave no answer; going on with what was read")
        return error
    return None


if __name__ == "__main__":
    sys.exit(run_job(pipeline, ["pipeline", *sys.argv[1:]]))
