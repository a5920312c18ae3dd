"""Writes docs/sql-cookbook.md: questions, the SQL that answers them, and what it shows.

The questions are those of examples/cookbook*.sql. Builds their lakehouses from bundled recordings,
in one Spark session: PYTHONPATH=. .venv-dev/bin/python docs/cookbook.py
"""

from __future__ import annotations

import io
import re
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.ingest_decode import spark_session
from docs.markdown import WIDTH, paragraph
from jobs.anomalies import anomalies
from jobs.decode import decode
from jobs.explain import explain
from jobs.history import history
from jobs.ingest import ingest
from jobs.runtime.page import facts_of
from jobs.runtime.run import Run
from jobs.runtime.summary import show_summary
from jobs.sql import sql
from jobs.validate import validate
from launch.command_line import parse
from reporting.model import For
from storage.lakehouse import Lakehouse
from storage.statements import split

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "sql-cookbook.md"
EXAMPLES = ROOT / "examples"
# Where each file's questions are asked: the clusters of a lakehouse, and the recording of each.
DEMO = "cookbook.sql"
MORE = "cookbook-more.sql"
RECORDINGS = {
    DEMO: {"default": "examples/recordings/4.3.1-storm.parquet"},
    MORE: {
        "classic": "tests/truth/4.3.1-classic.parquet",
        "modern": "examples/recordings/4.3.1-modern.parquet",
        "admin": "tests/truth/4.3.1-admin2.parquet",
        "compacted": "tests/truth/4.3.1-compacted.parquet",
        "field": "tests/field/04-one-partition-stands-still.parquet",
        "deleted": "tests/field/09-expired-during-a-rebalance.parquet",
    },
}
_HEAD = """\
# SQL cookbook

Questions that people ask in the night or after it, as SQL with its output. Written by
`docs/cookbook.py` from the files below; a test runs them all.

The first {demo} are asked of the lakehouse of the demo ({sql_demo}).
[The post-mortem](post-mortem.md) shows in which order they help.

```sh
./spark-submit.sh demo
./spark-submit.sh sql --lakehouse ./demo-lakehouse --file {sql_demo}
```

The others need what the demo lacks: other assignors, the new protocols, resets, a compacted log,
a partition that nobody reads, a topic that is deleted. They are asked of a lakehouse in which six
recordings are six clusters ({sql_more}). Leave `cluster = …` out if yours holds only one.

```sh
{commands}
./spark-submit.sh sql --lakehouse ./cookbook-lakehouse --file {sql_more}
```

How far a group is behind, and for how long, is in [lag.md](lag.md); what could not be decoded, in
`silver.quarantine`. Tables: [tables.md](tables.md). Views and functions: [sql.md](sql.md).

{contents}
"""


def build(spark: SparkSession, root: str, file: str) -> None:
    """Make the lakehouse that a file's questions are asked of, as far as they need it."""
    for cluster, recording in RECORDINGS[file].items():
        given = ["--records", str(ROOT / recording), "--lakehouse", root, "--cluster", cluster]
        run = _run(spark, ["pipeline", *given])
        ingest(run)
        if cluster != "compacted":  # only bronze is asked of
            decode(run)
            history(run)
        if file == DEMO or cluster in ("field", "deleted"):
            anomalies(run)
        run.lakehouse.runs.write()


def _run(spark: SparkSession, argv: list[str], out: Console | None = None) -> Run:
    options = parse(argv)
    quiet = Console(quiet=True)
    lakehouse = Lakehouse(spark, options.lakehouse, options.cluster)
    return Run(spark=spark, options=options, lakehouse=lakehouse, out=out or quiet, err=quiet)


def questions(file: str) -> list[tuple[str, str, str]]:
    """Cut a file into questions: what is asked, what there is to say, the SQL."""
    found = []
    for statement in split((EXAMPLES / file).read_text("utf-8")):
        lines = statement.strip().splitlines()
        notes = [line[2:].strip() for line in lines if line.startswith("--")]
        query = "\n".join(line for line in lines if not line.startswith("--"))
        found.append((notes[0], " ".join(notes[1:]), query))
    return found


def summary(run: Run) -> None:
    """Print what a pipeline says of the groups at its end."""
    show_summary(run, facts_of(run.lakehouse, 0, readers=For.SUMMARY))


# What a job prints of the tables that are there.
_JOBS = {"sql": sql, "explain": explain, "demo": summary, "validate": validate}


class _Shown(Console):
    """Keeps each table that is printed, as text."""

    def __init__(self, width: int) -> None:
        super().__init__(file=io.StringIO(), width=width)
        self.tables: list[str] = []

    def print(self, *objects: Any, **how: Any) -> None:  # noqa: ANN401 - as rich has it
        with self.capture() as capture:
            super().print(*objects, **how)
        self.tables.append(capture.get().strip("\n"))


def answers(spark: SparkSession, root: str, file: str) -> list[str]:
    """Ask a file's questions of its lakehouse; give what ./spark-submit.sh sql would print."""
    return ask(spark, ["--lakehouse", root, "--file", str(EXAMPLES / file)])


def ask(spark: SparkSession, argv: list[str], job: str = "sql", width: int = WIDTH) -> list[str]:
    """Return what ./spark-submit.sh JOB would print with these options, a text for each table."""
    shown = _Shown(width)
    _JOBS[job](_run(spark, [job, *argv], shown))
    return [textwrap.dedent(table) for table in shown.tables]


def page(shown: dict[str, list[str]]) -> str:
    """Return the text of the page, with the answers to each file's questions."""
    sections, contents = [], []
    for file, tables in shown.items():
        for (asked, note, query), answer in zip(questions(file), tables, strict=True):
            anchor = re.sub(r"[^\w\- ]", "", asked.lower()).replace(" ", "-")
            contents.append(paragraph(f"[{asked}](#{anchor})", f"{len(contents) + 1}. ", "    "))
            about = [paragraph(note)] if note else []
            parts = [f"## {asked}", *about, f"```sql\n{query}\n```", f"```\n{answer}\n```"]
            sections.append("\n\n".join(parts))
    commands = [
        f"./spark-submit.sh pipeline --lakehouse ./cookbook-lakehouse --cluster {cluster} \\\n"
        f"  --records {recording}"
        for cluster, recording in RECORDINGS[MORE].items()
    ]
    head = _HEAD.format(
        demo=len(shown[DEMO]),
        sql_demo=f"examples/{DEMO}",
        sql_more=f"examples/{MORE}",
        commands="\n".join(commands),
        contents="\n".join(contents),
    )
    return "\n".join([head, "\n\n".join(sections), ""])


def main() -> None:
    """Make both lakehouses, ask everything, and write the page."""
    with tempfile.TemporaryDirectory() as folder, spark_session("local[2]") as spark:
        shown = {}
        for file in RECORDINGS:
            build(spark, f"{folder}/{file}", file)
            shown[file] = answers(spark, f"{folder}/{file}", file)
    PAGE.write_text(page(shown), encoding="utf-8")


if __name__ == "__main__":
    main()
