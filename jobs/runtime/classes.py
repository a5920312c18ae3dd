"""Keeps Spark's classes as the JVM has them in memory, so that the next JVM need not read them.

Java calls it class data sharing (JEP 310, JEP 350). A job loads some 16,000 classes from Spark's
JARs, and reading, verifying and laying them out is a third of the processor time of a short one.

An archive is of one JVM and one class path, and not changed once it is there. The JVM holds both to
what it finds, and reads the JARs if anything is different.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NEW = "GROUPLEDGER_NEW_CLASSES"
"""The environment variable that names the file that a job's JVM writes its archive to."""

# It warns of classes that it leaves out, and of archives that do not fit.
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")

# Writing takes seconds, on a machine that is busy a minute.
_PATIENCE_S = 300


def key(class_path: Sequence[Path], env: Mapping[str, str]) -> str | None:
    """Returns the name that a JVM's archives of a class path have; None without JAVA_HOME.

    Args:
        class_path: JARs, and folders of JARs.
        env: Where JAVA_HOME is looked up.
    """
    home = env.get("JAVA_HOME")
    if home is None:
        return None
    parts = [Path(home, "bin", "java").resolve(), *class_path]
    # What was installed again in the same place has another time.
    text = "\0".join(f"{part}\0{part.stat().st_mtime_ns}" for part in parts if part.exists())
    return f"classes-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def kept(cache: Path, name: str) -> Path | None:
    """Returns the archive in a folder, if there is a whole one: half a one kills the JVM."""
    for path in cache.glob(f"{name}.*.jsa"):
        if path.stat().st_size == int(path.suffixes[-2].lstrip(".")):
            return path
    return None


def unfinished(cache: Path, name: str) -> Path:
    """Returns the file that this process has an archive written to, until it is a whole one."""
    for leftover in cache.glob(f"{name}.*.part"):
        if time.time() - leftover.stat().st_mtime > _PATIENCE_S:  # of a run that was killed
            leftover.unlink(missing_ok=True)
    return cache / f"{name}.{os.getpid()}.part"


def reading(archive: Path) -> list[str]:
    """Returns options for a JVM that uses an archive."""
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET]


def writing(part: Path) -> list[str]:
    """Returns options for a JVM that writes an archive when it ends; see `keep`."""
    return [f"-XX:ArchiveClassesAtExit={part}", *_QUIET]


def keep(jvm: subprocess.Popen[bytes], part: Path) -> None:
    """End a JVM that was started with `writing`, and put its archive in its place.

    Args:
        jvm: Spark's, which ends when its standard input does.
        part: What `unfinished` gave.
    """
    sys.stdout.flush()
    print("groupledger: keeping Spark's classes, to start faster (once) ...", file=sys.stderr)
    if jvm.stdin is not None:
        jvm.stdin.close()
    try:
        jvm.wait(_PATIENCE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        jvm.kill()
    if part.exists() and jvm.returncode == 0:
        name, _, _ = part.name.partition(".")
        part.rename(part.with_name(f"{name}.{part.stat().st_size}.jsa"))
    else:
        part.unlink(missing_ok=True)
        print("groupledger: Java wrote no archive; the next run tries again", file=sys.stderr)
