"""`./spark-submit.sh pipeline`: all that is done on a schedule, in order, and a summary."""

from __future__ import annotations

import sys
from collections.abc import Callable

from jobs.anomalies import anomalies
from jobs.decode import decode
from jobs.history import history
from jobs.ingest import ingest, preview
from jobs.lag import lag
from jobs.report import bring_up
from jobs.runtime.notify import notify
from jobs.runtime.page import facts_of
from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from jobs.runtime.summary import show_summary
from jobs.validate import validate
from reporting.metrics import write_groups
from reporting.model import For
from schemas.errors import SourceError


def pipeline(run: Run) -> None:
    """Take the data all the way, from its source to the last table."""
    if run.options.dry_run:
        preview(run)
        return
    unanswered, facts = None, None
    readers = For.SUMMARY if run.options.metrics is None else For.SUMMARY | For.METRICS
    if run.options.metrics_partitions:
        readers |= For.PARTITIONS
    for name in run.options.steps:
        if name == "lag":
            unanswered = _lag(run)
        elif name == "report":
            facts = bring_up(run, For.PAGE | readers)
        else:
            _DO[name](run)
    with run.step("summary"):
        facts = facts or facts_of(run.lakehouse, 0, readers=readers)
        show_summary(run, facts)
    if run.options.metrics is not None:
        with run.step("writing metrics"):
            write_groups(run.options.metrics, facts)
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


def _detect(run: Run) -> None:
    anomalies(run)
    notify(run)


_DO: dict[str, Callable[[Run], None]] = {
    "ingest": ingest,
    "decode": decode,
    "history": history,
    "anomalies": _detect,
    "validate": validate,
}


if __name__ == "__main__":
    sys.exit(run_job(pipeline, ["pipeline", *sys.argv[1:]]))
