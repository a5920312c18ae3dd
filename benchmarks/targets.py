"""Holds the product to its targets, all measured in one run; exit status 1 if one is missed.

Run it by ``benchmarks/run.sh targets --work /data/targets``: ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import operator
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import growth

_HISTORY, _HOUR = 5_000_000, 50_000  # records


class Target(NamedTuple):
    """What is asked for: a name, at most or at least a number, and how to write one."""

    name: str
    relation: str
    asked: float
    form: str

    def is_held(self, measured: float) -> bool:
        """Return whether what was measured is what is asked for."""
        holds = {"<=": operator.le, ">=": operator.ge}[self.relation]
        return bool(holds(measured, self.asked))


FLOOR = Target("ingest and decode, in raw copies to Delta", "<=", 2.0, "{:.2f}")
ROWS = Target("decoding, in rates of a row-at-a-time UDF", ">=", 10, "{:.1f}")
COMMITS = Target("offset commits decoded a second on a core", ">=", 3e6, "{:,.0f}")
METADATA = Target(
    "group metadata of 10 members decoded a second on a core", ">=", 60_000, "{:,.0f}"
)
FIRST = Target("whole pipeline of 5 million records", "<=", 150, "{:.0f} s")
MEMORY = Target("memory of all its processes", "<=", 8, "{:.1f} GiB")
HOUR = Target("50,000 records behind 5 million, with Spark's start", "<=", 40, "{:.1f} s")
GROWTH = Target("the same, in times of it behind 50,000", "<=", 1.3, "{:.2f}")


def main(argv: list[str]) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=9, help="runs of the hour behind each history")
    parser.add_argument("--work", type=Path, required=True, help="folder for data and lakehouses")
    options = parser.parse_args(argv)
    options.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        machine, measured = ingest_decode(work)
        measured |= pipelines(Path(work), options.runs)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(", ".join(f"{key} {value}" for key, value in machine.items()))
    table = Table("", "asked for", "measured", "")
    for target, number in measured.items():
        asked = f"{target.relation} {target.form.format(target.asked)}"
        verdict = "held" if target.is_held(number) else "missed"
        table.add_row(target.name, asked, target.form.format(number), verdict)
    console.print(table)
    return 0 if all(t.is_held(number) for t, number in measured.items()) else 1


def ingest_decode(work: str) -> tuple[dict[str, object], dict[Target, float]]:
    """Measure what one session does with five million records.

    Returns:
        The machine, and the measured targets.
    """
    command = [sys.executable, "-m", "benchmarks.ingest_decode", "--json", "--work", work]
    command += ["--records", str(_HISTORY)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    printed = json.loads(done.stdout)
    rates = {figure["name"]: figure["records_per_second"] for figure in printed["figures"]}
    alone = "decoder alone, 1 core: "
    return printed["machine"], {
        FLOOR: rates["floor: raw copy to Delta"] / rates["ingest + decode"],
        ROWS: rates["decode only, vectorised"] / rates["decode only, row-at-a-time UDF"],
        COMMITS: rates[alone + "offset commits"],
        METADATA: rates[alone + "group metadata, 10 members"],
    }


def pipelines(work: Path, runs: int) -> dict[Target, float]:
    """Measure a first run of five million records, and hours behind it."""
    print("the pipeline, runs in processes of their own ...", file=sys.stderr, flush=True)
    growth.prepare(work, _HISTORY, _HOUR)
    growth.bring_in(work, "short")
    first = growth.bring_in(work, "long")
    short, long = growth.medians(growth.hours(work, runs).seconds)
    return {
        FIRST: first.seconds,
        MEMORY: first.peak_gib,
        HOUR: long,
        GROWTH: long / short,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
