"""Golden rows: compares what the pipeline makes of recordings with what it made before.

Each recording is processed twice, each time into a lakehouse of its own: at once, and cut into
three runs, one after the other, so that what a run keeps for the next is compared, too. All rows of
the tables of silver and gold are dumped, one folder a recording, one file of JSON lines a table,
and two such dumps are compared::

    PYTHONPATH=. python -m tests.support.golden --recordings examples/recordings --out /tmp/new
    PYTHONPATH=. python -m tests.support.golden --recordings examples/recordings --out /tmp/new \
        --against /tmp/old

A dump that is there is not made again, so the second line only compares. What another checkout
makes is dumped by its code, run on this file: ``PYTHONPATH=CHECKOUT python -P THIS_FILE …``.

Tables are compared by the columns that both dumps have, less `WALL_CLOCK` and `RUNS`; ``--runs``
compares the numbers of runs, too. ``--digests FILE`` writes what ``tests/spark/test_golden.py``
holds the code against: of each table a number of rows and a hash. Exit status 1: they differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from schemas.silver import silver_tables
from tests.support.jobs import run, without_moments
from tests.support.parts import parts_of

Row = dict[str, Any]
Tables = dict[str, list[Row]]

VARIANTS = {"once": 1, "thrice": 3}
"""In how many runs a recording is processed."""

KEYS = {
    "gold.group_states": ("group_id", "sequence"),
    "gold.group_generations": ("group_id", "record_partition", "record_offset"),
    "gold.member_sessions": ("group_id", "member_id", "record_partition", "record_offset"),
    "gold.partition_owners": (
        *("group_id", "topic", "topic_id", "topic_partition"),
        *("member_id", "record_offset"),
    ),
    "gold.offset_progress": ("group_id", "topic", "topic_partition", "hour"),
    "gold.offset_moves": ("record_partition", "record_offset"),
    "gold.committed_offsets": ("group_id", "topic", "topic_partition"),
    "gold.log_offsets": ("topic", "topic_partition"),
    "gold.group_checkpoints": ("group_id",),
    "gold.anomalies": ("anomaly_id", "kind", "subject"),
    "gold.group_health": ("group_id",),
    "gold.anomaly_checkpoints": ("group_id",),
} | dict.fromkeys(
    [*(f"silver.{name}" for name in silver_tables()), "silver.quarantine"],
    ("record_partition", "record_offset"),
)
"""The tables that are compared, and what tells their rows apart."""

WALL_CLOCK = frozenset({"ingested_at", "observed_at", "sampled_at", "decoder"})
"""Columns that are other in every run, or in every release; in no dump."""

RUNS = frozenset(
    {"ingest_run", "decode_run", "history_run", "rebuilt_run", "lag_run", "anomalies_run"}
)
"""Columns with numbers of runs; in dumps, but compared only when asked for."""

_JSON = ("state", "evidence", "thresholds")
_SHOWN = 3
_WIDTH = 300


_NO_TABLES = ("--skip", "validate,report")
"""What makes none of the tables that are compared."""


def process(recording: Path, root: Path, runs: int) -> None:
    """Run the pipeline on a recording, cut into so many parts, into the lakehouse at `root`."""
    parts = [recording]
    if runs > 1:
        parts = parts_of(recording, root.with_name(f"{root.name}-parts"), runs)
    for part in parts:
        add(part, root)


def add(records: Path, root: Path) -> None:
    """Run the pipeline on what is new."""
    outcome = run("pipeline", "--records", records, "--lakehouse", root, *_NO_TABLES)
    assert outcome.status == 0, f"{records}: {outcome.err}"


def tables(root: Path) -> Tables:
    """Return the rows of every table of `KEYS` that a lakehouse has, without wall clocks."""
    found = {}
    for name in KEYS:
        path = root / name.replace(".", "/")
        if not (path / "_delta_log").is_dir():
            continue
        read = DeltaTable(path).to_pyarrow_table()  # Spark plans longer than it reads
        chosen = [column for column in read.column_names if column not in {"cluster", *WALL_CLOCK}]
        rows = read.select(chosen).to_pylist()
        if rows:
            found[name] = [_of_any_moment(name, _plain(row)) for row in rows]
    return found


def told(root: Path) -> dict[str, list[str]]:
    """Return all rows as text, without the numbers of runs."""
    return {name: lines(rows, compared(rows)) for name, rows in tables(root).items()}


def _plain(row: Row) -> Row:
    """Put JSON's own values for all that a row holds; of columns that are JSON, what they say."""
    plain: Row = json.loads(json.dumps(row, default=_text))
    return plain | {name: _parsed(plain[name]) for name in _JSON if name in plain}


def _parsed(value: object) -> object:
    """Read JSON that is text, also such text inside of it."""
    if isinstance(value, str) and value.startswith(("{", "[")):
        with suppress(ValueError):  # a name may look like it
            value = json.loads(value)
    if isinstance(value, dict):
        return {name: _parsed(inner) for name, inner in value.items()}
    return [_parsed(inner) for inner in value] if isinstance(value, list) else value


def _text(value: Any) -> str:  # noqa: ANN401 - whatever a column holds
    return value.hex() if isinstance(value, bytes) else value.isoformat()


def _of_any_moment(name: str, row: Row) -> Row:
    """Leave out when a gap of the log was found, which no record tells."""
    if name == "gold.anomalies" and row["kind"] == "coverage_gap":
        return row | dict.fromkeys(("anomaly_id", "started_at", "ended_at"))
    if name == "gold.anomaly_checkpoints" and row["group_id"] is None:
        return row | {"state": without_moments(row["state"])}
    if name == "gold.group_checkpoints":
        return row | {"state": _without_extras(row["state"])}
    return row


def _without_extras(checkpoint: Any) -> Any:  # noqa: ANN401 - JSON
    """Leave out what a checkpoint keeps of records besides what the fold reads of them later."""
    pending: list[Any] = []
    if checkpoint.get("pending"):
        records, *known = checkpoint["pending"]
        pending = [[record[:5] for record in records], *known]
    state = {name: value for name, value in checkpoint["state"].items() if name != "topic_names"}
    return {"state": state, "pending": pending}


def lines(rows: Iterable[Row], columns: Iterable[str]) -> list[str]:
    """Write rows of these columns as JSON, in order."""
    chosen = sorted(columns)
    return sorted(json.dumps({name: row[name] for name in chosen}, sort_keys=True) for row in rows)


def digest(rows: Iterable[Row], columns: Iterable[str]) -> str:
    """Sum up the rows of a table: how many, and the begin of a SHA-256 of them all."""
    written = lines(rows, columns)
    hashed = hashlib.sha256("\n".join(written).encode()).hexdigest()
    return f"{len(written)} {hashed[:16]}"


def compared(rows: Iterable[Row], *, runs: bool = False) -> list[str]:
    """Name the columns of rows that are compared."""
    columns = next(iter(rows), {})
    return [name for name in columns if runs or name not in RUNS]


def dump(recording: Path, out: Path) -> None:
    """Tell a recording in every variant, and write the rows of all tables below `out`."""
    for variant, runs in VARIANTS.items():
        folder = out / recording.stem / variant
        if folder.exists():
            continue
        with tempfile.TemporaryDirectory() as work:
            root = Path(work) / "lakehouse"
            process(recording, root, runs)
            found = tables(root)
        part = folder.with_name(f"{variant}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name, rows in found.items():
            text = "\n".join(lines(rows, rows[0]))
            (part / f"{name}.jsonl").write_text(f"{text}\n", "utf-8")
        part.rename(folder)
        counts = sum(map(len, found.values()))
        _say(f"{recording.stem}, {variant}: {counts:,} rows of {len(found)} tables")


def load(folder: Path) -> Tables:
    """Read the rows of a dump of one recording and variant."""
    return {
        path.stem: [
            _of_any_moment(path.stem, json.loads(line))
            for line in path.read_text("utf-8").splitlines()
        ]
        for path in sorted(folder.glob("*.jsonl"))
    }


def differences(old: Tables, new: Tables, *, runs: bool = False) -> Iterator[str]:
    """Say in which rows two dumps of a recording differ, the first few of each table."""
    for name in KEYS:
        before, after = old.get(name, []), new.get(name, [])
        both = set(compared(before or after, runs=runs)) & set(compared(after or before, runs=runs))
        was, is_ = Counter(lines(before, both)), Counter(lines(after, both))
        gone, come = was - is_, is_ - was
        if gone or come:
            counts = f"{len(before):,} rows before, {len(after):,} now"
            yield f"{name}: {counts}; {gone.total():,} are gone, {come.total():,} are new"
            yield from _first(name, [*map(json.loads, gone)], [*map(json.loads, come)])


def not_in_both(old: Tables, new: Tables) -> Iterator[str]:
    """Name the columns that are not compared, since one of two dumps lacks them."""
    for name in KEYS:
        apart = set(compared(old.get(name, []))) ^ set(compared(new.get(name, [])))
        if apart and name in old and name in new:
            yield f"{name}: not compared, since one has no such column: {', '.join(sorted(apart))}"


def _first(name: str, gone: list[Row], come: list[Row]) -> Iterator[str]:
    """Tell of the first rows that differ: by column where a row of the same key is there."""
    by_key: dict[str, list[Row]] = defaultdict(list)
    for row in come:
        by_key[_key(name, row)].append(row)
    alone = []
    shown = 0
    for row in gone:
        key = _key(name, row)
        if not by_key[key]:
            alone.append(row)
            continue
        other = by_key[key].pop()
        shown += 1
        if shown <= _SHOWN:
            yield f"  {key}"
            for column in row:
                if row[column] != other[column]:
                    yield f"    {column}: {_short(row[column])} -> {_short(other[column])}"
    yield from (f"  - {_short(row)}" for row in alone[:_SHOWN])
    left = [row for rows in by_key.values() for row in rows]
    yield from (f"  + {_short(row)}" for row in left[:_SHOWN])


def _key(name: str, row: Row) -> str:
    return ", ".join(f"{column}={row.get(column)}" for column in KEYS[name])


def _short(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"


def digests(out: Path, names: Iterable[str]) -> dict[str, Any]:
    """Sum up a dump: the columns of each table once, digests by recording, variant and table."""
    columns: dict[str, list[str]] = {}
    found: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for name in names:
        for variant in VARIANTS:
            by_table = load(out / name / variant)
            for table, rows in by_table.items():
                columns.setdefault(table, sorted(compared(rows)))
            found[name][variant] = {t: digest(rows, columns[t]) for t, rows in by_table.items()}
    of_table = {table: ", ".join(of) for table, of in sorted(columns.items())}
    return {"columns": of_table, "digests": found}


def session() -> SparkSession:
    """Make the session that ./spark-submit.sh would make on two cores."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - a comparison needs none

    from launch import jars, submit  # noqa: PLC0415

    os.environ |= {"GX_ANALYTICS_ENABLED": "False", "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
    os.environ |= dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    target = submit.choose_target("local[2]", {})
    arguments = submit.spark_arguments(target, {}, jars.fetch(jars.spark_jars()), None)
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*arguments, "pyspark-shell"])
    return SparkSession.builder.getOrCreate()


def main(argv: Sequence[str]) -> int:
    """Dump what is not dumped yet, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--recordings", type=Path, action="append", required=True, help="folder or Parquet file"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the dump")
    parser.add_argument("--against", type=Path, help="folder of a dump to compare with")
    parser.add_argument("--runs", action="store_true", help="compare numbers of runs, too")
    parser.add_argument("--digests", type=Path, help="file to write the digests to")
    options = parser.parse_args(argv)
    given = [
        path
        for named in options.recordings
        for path in (sorted(named.glob("*.parquet")) if named.is_dir() else [named])
    ]
    kinds = [(path.stem, variant) for path in given for variant in VARIANTS]
    if not all((options.out / name / variant).exists() for name, variant in kinds):
        spark = session()
        for path in given:
            dump(path, options.out)
        spark.stop()
    if options.digests:
        written = json.dumps(digests(options.out, [path.stem for path in given]), indent=1)
        options.digests.write_text(f"{written}\n", "utf-8")
    if options.against is None:
        return 0
    differ = 0
    for name, variant in kinds:
        both = [load(folder / name / variant) for folder in (options.against, options.out)]
        different = list(differences(*both, runs=options.runs))
        differ += bool(different)
        _say(f"{name}, {variant}: {'they differ' if different else 'the same'}")
        for line in [*not_in_both(*both), *different]:
            _say(f"  {line}")
    return int(differ > 0)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
