"""Runs the pipeline on a Spark standalone cluster of one worker, then of two.

Master and workers are processes of this machine, each worker with one core, as many executors as
workers. So this shows that the work divides; what a network costs it does not show. The driver's
own work has no core of its own where there are two workers on two cores.

Run it by ``benchmarks/run.sh scale_out --records 1000000 --work /data/scale-out``.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import generate
from benchmarks.shapes import pipeline
from jobs.runtime.jars import pyspark_home
from tests.support.broker import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.shapes import Told

_HOST = "127.0.0.1"
_MEMORY = "2g"
_DEADLINE = 60
# Spark's default, 200, is for a cluster of another size; the same for both.
FEW_TASKS = "spark.sql.shuffle.partitions=8"


@contextmanager
def standalone(workers: int, work: Path) -> Iterator[str]:
    """Start a master and workers of one core each; give the address of the master.

    Raises:
        SystemExit: One of them did not come up.
    """
    with ExitStack() as stack:
        port, *own_ports = free_ports(1 + workers)
        _start(stack, work, "master.Master", "--port", str(port))
        _wait(port)
        address = f"spark://{_HOST}:{port}"
        for number, own in enumerate(own_ports):
            folder = ["--work-dir", str(work / f"worker-{number}")]
            size = ["--cores", "1", "--memory", _MEMORY]
            _start(stack, work, "worker.Worker", "--port", str(own), *size, *folder, address)
            _wait(own)
        yield address


def _start(stack: ExitStack, work: Path, name: str, *arguments: str) -> None:
    home = pyspark_home()
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    command += ["--host", _HOST, "--webui-port", "0", *arguments]
    log = stack.enter_context((work / f"{name}.log").open("ab"))
    env = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": _HOST}
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)
    stack.callback(process.wait)
    stack.callback(process.terminate)


def _wait(port: int) -> None:
    deadline = time.monotonic() + _DEADLINE
    while time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex((_HOST, port)) == 0:
                return
        time.sleep(0.2)
    sys.exit(f"nothing listens at port {port} after {_DEADLINE} s")


def main(argv: list[str]) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    generate.add_options(parser)
    parser.add_argument("--work", type=Path, required=True, help="folder for data and lakehouse")
    options = parser.parse_args(argv)
    work: Path = options.work
    topic = work / "topic"
    if not topic.exists():
        generate.generate(generate.shape_of(options), topic)
    # The driver takes its Python along, which executors on this machine have, too.
    os.environ["PYSPARK_PYTHON"] = str(Path(__file__).parents[1] / ".venv" / "bin" / "python")
    os.environ["SPARK_LOCAL_IP"] = _HOST
    # Ended by a signal, Python would leave master and workers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    told = {}
    for workers in (1, 2):
        with standalone(workers, work) as master:
            told[workers] = pipeline(topic, work, ["--master", master, "--conf", FEW_TASKS])
    _print(options.records, told[1], told[2])


def _print(records: int, one: Told, two: Told) -> None:
    print(f"{records:,} records; one worker, two workers, of a core each")
    rows = [("the process as a whole", one.seconds, two.seconds)]
    second = two.summary["seconds"]
    rows += [(step, spent, second[step]) for step, spent in one.summary["seconds"].items()]
    for step, slow, fast in rows:
        print(f"{step:34}{slow:>8.1f}s{fast:>8.1f}s{slow / fast:>8.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
