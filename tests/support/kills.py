"""Jobs as processes of their own, killed by SIGKILL on the way, and runs that end as if killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from schemas.tables import TableSpec
from storage.lakehouse import Lakehouse
from storage.runs import Runs

if TYPE_CHECKING:
    from typing_extensions import Self

QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC"
"""Options of a JVM that compiles what it runs once."""
BRIEF = ("--conf", f"spark.driver.extraJavaOptions={QUICK}")
"""Options of a job that ends before the JVM has warmed up, as those that come behind others do."""
_LOOK_S = 0.002
_LAUNCH = "import sys; from launch.submit import main; main(sys.argv[1:])"


class Job:
    """A job in processes of its own: Python, the JVM, Python workers."""

    def __init__(self, *argv: object, env: Mapping[str, str] | None = None) -> None:
        """Start it as ./spark-submit.sh does, without the set-up."""
        command = [sys.executable, "-c", _LAUNCH, *map(str, argv)]
        self.started = time.monotonic()
        self.lines: list[tuple[float, str]] = []
        self._process = subprocess.Popen(
            command,
            env=os.environ | dict(env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._out: list[str] = []
        self._readers = [
            threading.Thread(target=self._listen, args=(self._process.stderr,), daemon=True),
            threading.Thread(target=self._keep, args=(self._process.stdout,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, whatever has become of the test."""
        self.kill()

    def _listen(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self.lines.append((time.monotonic() - self.started, line.rstrip()))

    def _keep(self, lines: IO[str]) -> None:
        with lines:
            self._out.extend(lines)

    @property
    def is_running(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def wait_to_catch(self, number: signal.Signals) -> None:
        """Wait until it has a handler of a signal: before, it ends without a word."""
        status = Path(f"/proc/{self.pid}/status")
        while self.is_running and status.exists():  # there is one on Linux alone
            caught = re.search(r"^SigCgt:\s*(\w+)", status.read_text(), re.MULTILINE)
            if caught is not None and int(caught[1], 16) >> (number - 1) & 1:
                return
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        """The process that the others are below."""
        return self._process.pid

    @property
    def out(self) -> str:
        """What it wrote to stdout."""
        return "".join(self._out)

    @property
    def err(self) -> str:
        """What it said on stderr."""
        return "\n".join(line for _, line in self.lines)

    @property
    def complaints(self) -> list[str]:
        """The lines that a failed job ends with; it should be one."""
        return [line for _, line in self.lines if line.startswith("groupledger:")]

    def wait(self, timeout_s: float = 900) -> int:
        """Wait for its end; give its exit status."""
        status = self._process.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        return status

    def kill(self) -> bool:
        """Kill all its processes; return whether it still ran."""
        was_running = self.is_running
        if was_running:
            os.killpg(self._process.pid, signal.SIGKILL)
        self.wait()
        return was_running

    def end(self, number: signal.Signals) -> int:
        """Send a signal: SIGINT to all its processes, as a terminal does; give its exit status."""
        send = os.killpg if number == signal.SIGINT else os.kill
        send(self._process.pid, number)
        return self.wait(60)

    def kill_after(self, seconds: float) -> bool:
        """Kill it when so much time has passed from now; return whether it still ran."""
        deadline = time.monotonic() + seconds
        while self.is_running and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        return self.kill()

    def await_file(self, folder: Path, pattern: str) -> bool:
        """Wait until another file is there; return whether it still runs."""
        seen = set(folder.glob(pattern))
        while self.is_running:
            if set(folder.glob(pattern)) - seen:
                return True
            time.sleep(_LOOK_S)
        return False

    def kill_when(self, folder: Path, pattern: str) -> bool:
        """Kill it as soon as another file is there; return whether it still ran."""
        return self.await_file(folder, pattern) and self.kill()

    def await_step(self, name: str) -> bool:
        """Wait until it has said that a step is done; return whether it still runs."""
        while self.is_running:
            if self.has_done(name):
                return True
            time.sleep(_LOOK_S)
        return False

    def has_done(self, name: str) -> bool:
        """Return whether it has said that a step is done."""
        return any(line.startswith(f"{name}: ") for _, line in self.lines)


def steps_of(seconds: Mapping[str, float]) -> list[str]:
    """Return the steps that a job has said, in order, from its summary."""
    return [name for name in seconds if name != "start"]


def counted(names: Iterable[str]) -> str:
    """Say how often each of some names is there."""
    found = sorted(names)
    return ", ".join(f"{name} {found.count(name)}" for name in dict.fromkeys(found))


@contextmanager
def killed_behind(table: TableSpec) -> Iterator[None]:
    """Let runs of this process end behind their write to a table."""
    write = Lakehouse._write

    def killed(self: Lakehouse, spec: TableSpec, *given: object, **named: object) -> int | None:
        version = write(self, spec, *given, **named)  # type: ignore[arg-type]
        if spec is table:
            raise KeyboardInterrupt
        return version

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lakehouse, "_write", killed)
        yield


@contextmanager
def killed_before_it_is_noted() -> Iterator[None]:
    """Let runs of this process end behind their last write, before the ledger has them as done."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runs, "note", killed)
        yield
