"""Measures the pipeline of this checkout beside that of another commit, in one run on one machine.

Makes a topic of each size, with an hour of new records behind it, and lets both checkouts run
``./spark-submit.sh pipeline`` in turn, each time in a process of its own, Spark's start included:

- first: the topic into an empty lakehouse;
- hour: the new records behind it, into a copy of that lakehouse;
- nothing: the same again, with nothing new.

Prints a table for each: seconds, also of every step, the most memory of all processes, and Spark's
jobs by description, from its event log; the last column is this checkout in times of the other.
Before, each checkout runs once on a small recording, so that what is set up once is not measured.

Run it by ``benchmarks/run.sh engine --against COMMIT --sizes 1000000,5000000 --work /data/engine``.
The next call finds the topics in the folder, and rebuilds the lakehouses. ``--master standalone2``
runs both on a Spark standalone cluster of two workers, as benchmarks/scale_out.py does.

``--json FILE`` also writes the figures, with the commits and the machine, as
benchmarks/results/engine.json has them: docs/performance.py makes a table of that file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TypeAlias

from benchmarks import growth, memory, scale_out
from benchmarks.growth import ROOT

# By name of a figure, in the order of the table.
Figures: TypeAlias = dict[str, float]

KINDS = ("first", "hour", "nothing")
_OURS = "this checkout"
_RECORDING = ROOT / "examples" / "recordings" / "2.2.2-default.parquet"
_STANDALONE = "standalone"
_SECONDS, _JOBS = "seconds", "Spark jobs"
_FEW_JOBS = 3  # for a row of their own
_WIDTH = 80


def main(argv: list[str]) -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    work = Path(tempfile.gettempdir()) / "groupledger-engine"
    parser.add_argument("--against", metavar="COMMIT", help="the other one (default: none)")
    parser.add_argument(
        "--sizes", type=_numbers, default=[1_000_000], metavar="N,N", help="records"
    )
    parser.add_argument("--hour", type=int, default=50_000, help="new records behind each size")
    parser.add_argument(
        "--only", type=_kinds, default=KINDS, metavar="KIND,KIND", help="which runs"
    )
    parser.add_argument("--runs", type=int, default=1, help="of each, to take medians of")
    parser.add_argument(
        "--master", default="local[*]", help="local[N], standalone1, standalone2 (workers)"
    )
    parser.add_argument("--work", type=Path, default=work, help=f"folder (default: {work})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    options = parser.parse_args(argv)
    work = options.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    checkouts = {_OURS: ROOT}
    if options.against:
        checkouts = {options.against: checkout_of(options.against, work), **checkouts}
    topics = {size: topic_of(work, size, options.hour) for size in options.sizes}
    # Ended by a signal, Python would leave master and workers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with master_of(options.master, work) as spark:
        for checkout in reversed(checkouts.values()):  # the other may use our Python environment
            pipeline(_RECORDING, work / "small", checkout, spark)
            shutil.rmtree(work / "small")
        results = []
        for size, topic in topics.items():
            found = measure(topic, checkouts, spark, options.only, options.runs)
            results += [
                {"kind": kind, "records": size, "figures": [_medians(runs) for runs in by.values()]}
                for kind, by in found.items()
            ]
            names = {
                "first": f"First run of {size:,} records",
                "hour": f"{options.hour:,} new records behind {size:,}",
                "nothing": f"Nothing new behind {size:,}",
            }
            for kind, figures in found.items():
                print(f"\n### {names[kind]}: {options.master}, median of {options.runs}\n")
                print("\n".join(table(figures)), flush=True)
    if options.json:
        about = {"commits": [_commit(checkout) for checkout in checkouts.values()]}
        about |= {"master": options.master, "cores": os.cpu_count(), "java": _java()}
        about |= {"hour": options.hour, "runs": options.runs}
        text = json.dumps({**about, "results": results}, indent=2)
        options.json.write_text(f"{text}\n", encoding="utf-8")


def _commit(checkout: Path) -> str:
    git = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()


def _java() -> str:
    """Give the version of the Java that benchmarks/run.sh has found."""
    release = Path(os.environ["JAVA_HOME"], "release").read_text("utf-8")
    return re.findall(r'^JAVA_VERSION="(.+)"', release, re.MULTILINE)[0]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _kinds(text: str) -> tuple[str, ...]:
    chosen = text.split(",")
    if not set(chosen) <= set(KINDS):
        raise argparse.ArgumentTypeError(f"not of {', '.join(KINDS)}: {text}")
    return tuple(kind for kind in KINDS if kind in chosen)


def checkout_of(commit: str, work: Path) -> Path:
    """Check a commit out below `work`, with our Python environment if it asks for the same."""
    git = ["git", "-C", str(ROOT)]
    parse = [*git, "rev-parse", "--short", "--verify", f"{commit}^{{commit}}"]
    name = subprocess.run(parse, check=True, capture_output=True, text=True).stdout.strip()
    checkout = work / f"checkout-{name}"
    if not checkout.exists():
        subprocess.run([*git, "worktree", "prune"], check=True)
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", checkout, name], check=True)
    ours, theirs = (folder / "requirements.lock" for folder in (ROOT, checkout))
    venv = checkout / ".venv"
    if not os.path.lexists(venv) and ours.read_bytes() == theirs.read_bytes():
        venv.symlink_to(ROOT / ".venv")
    return checkout


def topic_of(work: Path, size: int, hour: int) -> Path:
    """Make a topic, unless it is there: folders with all but the hour, `long`, and with `hour`."""
    topic = work / f"topic-{size}-{hour}"
    if not topic.exists():
        part = topic.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        # In a process of its own, whose memory does not count as the pipeline's.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
            apart.submit(growth.prepare, part, size, hour).result()
        part.rename(topic)
    return topic


@contextmanager
def master_of(name: str, work: Path) -> Iterator[list[str]]:
    """Return the options that choose where Spark runs; start a standalone cluster if asked to."""
    if not name.startswith(_STANDALONE):
        yield ["--master", name]
        return
    with scale_out.standalone(int(name.removeprefix(_STANDALONE)), work) as cluster:
        yield ["--master", cluster.master, "--conf", scale_out.FEW_TASKS]


def measure(
    topic: Path,
    checkouts: Mapping[str, Path],
    spark: Sequence[str],
    kinds: Sequence[str],
    runs: int,
) -> dict[str, dict[str, list[Figures]]]:
    """Run each kind so many times by each checkout in turn; give figures by kind and checkout."""
    found: dict[str, dict[str, list[Figures]]] = {kind: defaultdict(list) for kind in kinds}
    needed = KINDS[: 1 + max(map(KINDS.index, kinds))]
    for number in range(runs):
        for kind in needed:
            if number and kind not in kinds:
                continue  # it was done once, for what comes behind it
            for which, (name, checkout) in enumerate(checkouts.items()):
                first, copy = (topic.with_name(f"{what}-{which}") for what in ("first", "copy"))
                lakehouse = first if kind == "first" else copy
                if kind != "nothing":
                    shutil.rmtree(lakehouse, ignore_errors=True)
                if kind == "hour":
                    # Delta never changes a file, so that links are as good as copies.
                    shutil.copytree(first, copy, copy_function=os.link)
                records = topic / ("long" if kind == "first" else "hour")
                took = pipeline(records, lakehouse, checkout, spark)
                if kind in found:
                    found[kind][name].append(took)
                load, seconds = os.getloadavg()[0], took[_SECONDS]
                progress = f"{kind} {number + 1} of {name}: {seconds:.1f} s, load {load:.1f}"
                print(progress, file=sys.stderr, flush=True)
    for which in range(len(checkouts)):
        for what in ("first", "copy"):
            shutil.rmtree(topic.with_name(f"{what}-{which}"), ignore_errors=True)
    return found


def pipeline(records: Path, lakehouse: Path, checkout: Path, spark: Sequence[str]) -> Figures:
    """Run the pipeline of a checkout, and give its figures.

    Raises:
        SystemExit: It failed.
    """
    events = lakehouse.with_name("events")
    shutil.rmtree(events, ignore_errors=True)
    events.mkdir()
    conf = {"enabled": "true", "dir": events.as_uri()}
    conf |= {"compress": "false", "rolling.enabled": "false"}  # one file of text
    more = list(spark)
    for key, value in conf.items():
        more += ["--conf", f"spark.eventLog.{key}={value}"]
    # The driver takes its Python along, which executors on this machine have, too.
    os.environ["PYSPARK_PYTHON"] = str(checkout / ".venv" / "bin" / "python")
    with memory.measured() as peak:
        took, summary = growth.pipeline(records, lakehouse, *more, checkout=checkout)
    jobs = jobs_of(next(events.iterdir()))
    figures: Figures = {_SECONDS: took, "peak memory, GiB": peak.gib, _JOBS: jobs.total()}
    figures |= {f"{_SECONDS}: {step}": spent for step, spent in summary["seconds"].items()}
    return figures | {f"{_JOBS}: {what}": number for what, number in jobs.most_common()}


def jobs_of(log: Path) -> Counter[str]:
    """Count the jobs of an event log, by what Spark or Delta say that they are for."""
    jobs: Counter[str] = Counter()
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith('{"Event":"SparkListenerJobStart"'):
                jobs[_purpose(json.loads(line).get("Properties") or {})] += 1
    return jobs


def _purpose(properties: Mapping[str, str]) -> str:
    """Name what a job is for, without what is other in each run: paths and numbers."""
    text = properties.get("spark.job.description") or properties.get("callSite.short") or "?"
    text = re.sub(r"\S*/(\S+)", r"\1", " ".join(text.split()))
    return re.sub(r"\d+", "n", text)[:_WIDTH].replace("|", "/")


def table(found: Mapping[str, Sequence[Figures]]) -> list[str]:
    """Write medians as a table: a column a checkout, and the last in times of the first."""
    medians = [_medians(runs) for runs in found.values()]
    titles = [*found, "ratio"][: len(found) + (len(found) > 1)]
    written = [f"| | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    for name in dict.fromkeys(name for figures in medians for name in figures):
        values = [figures.get(name, 0) for figures in medians]
        if name.startswith(f"{_JOBS}: ") and max(values) < _FEW_JOBS:
            continue
        form = ",.0f" if name.startswith(_JOBS) else ",.1f"
        cells = [format(value, form) for value in values]
        if len(values) > 1:
            cells.append(f"{values[-1] / values[0]:.2f}" if values[0] else "")
        written.append(f"| {name} | {' | '.join(cells)} |")
    return written


def _medians(runs: Sequence[Figures]) -> Figures:
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: statistics.median(run.get(name, 0) for run in runs) for name in names}


if __name__ == "__main__":
    main(sys.argv[1:])
