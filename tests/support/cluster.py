"""A Spark standalone cluster of this machine: a master, and workers of one core each."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from launch.jars import pyspark_home
from tests.support.broker import free_ports

HOST = "127.0.0.1"
FEW_TASKS = "spark.sql.shuffle.partitions=8"
"""Spark's default, 200, is for a cluster of another size."""
_MEMORY = "2g"
_DEADLINE_S = 60


@dataclass(frozen=True)
class Standalone:
    """A cluster that runs."""

    master: str  # its address, as `--master` takes it
    # The processes of its workers, each in a process group of its own.
    workers: list[subprocess.Popen[bytes]]

    def kill_worker(self, number: int) -> None:
        """Kill a worker with its executors, as a machine goes that loses its power."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)


@contextmanager
def standalone(workers: int, work: Path, *, pinned: bool = False) -> Iterator[Standalone]:
    """Start a master and workers.

    Args:
        workers: their number.
        work: a folder for what they write.
        pinned: whether each worker, with its executors and their Python, runs on one core alone;
            there have to be as many cores as workers (Linux).

    Raises:
        TimeoutError: one of them did not come up.
    """
    work.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        port, *own_ports = free_ports(1 + workers)
        _start(stack, work, "master.Master", "--port", str(port))
        wait_for(port)
        cluster = Standalone(f"spark://{HOST}:{port}", [])
        for number, own in enumerate(own_ports):
            folder = ["--work-dir", str(work / f"worker-{number}")]
            size = ["--cores", "1", "--memory", _MEMORY]
            argv = ["--port", str(own), *size, *folder, cluster.master]
            cluster.workers.append(_start(stack, work, "worker.Worker", *argv))
            if pinned:
                # It is still the shell: what that starts is pinned, too.
                os.sched_setaffinity(cluster.workers[-1].pid, {number})
            wait_for(own)
        yield cluster


def _start(stack: ExitStack, work: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    home = pyspark_home()
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    command += ["--host", HOST, "--webui-port", "0", *arguments]
    log = stack.enter_context((work / f"{name}.log").open("ab"))
    env = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST}
    process = subprocess.Popen(
        command, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True
    )
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def wait_for(port: int) -> None:
    """Wait until something listens at a port of this machine.

    Raises:
        TimeoutError: nothing did within a minute.
    """
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens at port {port} after {_DEADLINE_S} s")
