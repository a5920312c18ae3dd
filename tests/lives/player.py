"""Plays lives with Kafka's own coordinator, in a Java process, and reads what came of them."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from launch.jars import JarSet, cache_folder, fetch
from tests.lives.scripts import Life
from tests.support.broker import JARS

Row = dict[str, Any]
SOURCES = sorted(Path(__file__).parent.glob("*.java"))
_MAIN = "org.apache.kafka.coordinator.group.Lives"
_LOG = "org.slf4j.simpleLogger"
_COORDINATOR = "org.apache.kafka.coordinator.group.GroupMetadataManager"
_FLAGS = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", f"-D{_LOG}.defaultLogLevel=off"),
    *(f"-D{_LOG}.log.{_COORDINATOR}=info", f"-D{_LOG}.showThreadName=false"),
)
_HEAD = struct.Struct(">iqq")
_LENGTH = struct.Struct(">i")


class Kept(NamedTuple):
    """A record as the log has it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes
    value: bytes | None


class Played(NamedTuple):
    """What came of a life: its records, by partition and offset, and what was so, in time."""

    life: Life
    records: list[Kept]
    truth: list[Row]


def play(lives: Sequence[Life], seed: int, java: str) -> Iterator[Played]:
    """Play lives.

    Args:
        lives: with names of their own.
        seed: what clients and broker do that the script leaves open follows from it.
        java: path of a JDK's java.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "scripts.jsonl"
        script.write_text("".join(f"{life.line(seed)}\n" for life in lives), "utf-8")
        classpath = _built(java)
        command = [java, *_FLAGS, "-cp", classpath, _MAIN, str(script), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the coordinator's process failed:\n{done.stderr[-4_000:]}")
        for life in lives:
            log, truth = folder / f"{life.name}.log", folder / f"{life.name}.truth"
            told = [json.loads(line) for line in truth.read_text("utf-8").splitlines()]
            yield Played(life, list(_read(log.read_bytes())), told)


def _built(java: str) -> str:
    """Compile the harness, unless that is done; return the class path."""
    jars = f"{fetch(JarSet.from_file(JARS, name='kafka-broker'))[0].parent}/*"
    content = b"\0".join(path.read_bytes() for path in (JARS, *SOURCES))
    classes = cache_folder() / f"lives-{hashlib.sha256(content).hexdigest()[:16]}"
    if not classes.is_dir():
        made = Path(tempfile.mkdtemp(dir=cache_folder()))
        command = [str(Path(java).with_name("javac")), "-nowarn", "-proc:none", "-cp", jars]
        command += ["-d", str(made), *map(str, SOURCES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the harness does not compile:\n{done.stderr[-4_000:]}")
        try:
            made.rename(classes)
        except OSError:  # another run was faster
            shutil.rmtree(made)
    return f"{classes}:{jars}"


def _read(log: bytes) -> Iterator[Kept]:
    at = 0
    while at < len(log):
        partition, offset, timestamp = _HEAD.unpack_from(log, at)
        key, at = _bytes(log, at + _HEAD.size)
        value, at = _bytes(log, at)
        yield Kept(partition, offset, timestamp, key or b"", value)


def _bytes(log: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(log, at)
    start = at + _LENGTH.size
    return (None, start) if length < 0 else (log[start : start + length], start + length)
