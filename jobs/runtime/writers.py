"""Says that two runs write at once where that may lose rows: on s3a://, where Delta cannot tell.

Each run that writes leaves a file there while it lasts, and looks for those of others. S3 shows a
file from the moment it is written, so that of two runs at once one sees the other.
"""

from __future__ import annotations

import datetime as dt
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import functions as F

from jobs.runtime.run import Run
from storage import files

_FOLDER = "writers"
# Delta's setting for who has several writers arbitrated.
_LOG_STORE = "spark.delta.logStore.s3a.impl"
_UNSAFE = ("s3a:",)
# A run that was killed leaves its file; no run takes as long as this.
_LONGEST = dt.timedelta(hours=12)


@contextmanager
def announced(run: Run) -> Iterator[None]:
    """Show others that a run writes, and name those that do so already."""
    root = run.lakehouse.root
    is_safe = not root.startswith(_UNSAFE) or run.spark.conf.get(_LOG_STORE, None) is not None
    if is_safe or run.options.like.is_reader or run.options.dry_run:
        yield
        return
    now = dt.datetime.now(dt.timezone.utc)
    mine = f"{root}/{_FOLDER}/{uuid.uuid4().hex}"
    since = now.isoformat(" ", "seconds").removesuffix("+00:00")
    text = f"{run.options.job} of {run.options.cluster} on {socket.gethostname()}, since {since}"
    files.write(run.spark, mine, f"{text} UTC")
    try:
        for other in _others(run, mine, now):
            run.say(
                f"another run may be writing to this lakehouse: {other}. On s3a:// two at once can "
                "lose rows; if it was killed, all is well"
            )
        yield
    finally:
        files.delete(run.spark, mine)


def _others(run: Run, mine: str, now: dt.datetime) -> list[str]:
    files = run.spark.read.text(mine.rpartition("/")[0], wholetext=True)
    path, at = F.col("_metadata.file_path"), F.col("_metadata.file_modification_time")
    since = F.timestamp_millis(F.lit(int((now - _LONGEST).timestamp() * 1_000)))
    is_other = ~path.endswith(mine.rpartition("/")[2]) & (at > since)
    return [row.value for row in files.where(is_other).orderBy(at).collect()]
