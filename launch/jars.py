"""Fetches JARs with the Ivy that pyspark ships, so that no Maven is needed."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]

SPARKS = "4.0, 4.1 or 4.2"
"""The versions of Spark that jobs run on: tests/e2e/test_matrix.py tries each."""
_LISTS = {"4.0": "jars-spark4.0.xml", "4.1": "jars.xml", "4.2": "jars-spark4.2.xml"}
_SCALA = "2.13"
_SPARK_CORE = re.compile(r"spark-core_(?P<scala>[\d.]+)-(?P<version>(?P<minor>\d+\.\d+)\..+)\.jar")


class JarsError(Exception):
    """JARs could not be fetched; the message is one line that says what to do."""


@dataclass(frozen=True)
class JarSet:
    """What to fetch, in words that Ivy's command line understands."""

    name: str  # prefix of the folder that holds the JARs
    arguments: tuple[str, ...]  # Ivy's options that name the modules
    key: bytes  # what decides the content; another key is another folder

    @classmethod
    def from_file(cls, ivy_file: Path, *, name: str = "jars") -> JarSet:
        """Returns the set that an Ivy file lists."""
        return cls(name, ("-ivy", str(ivy_file)), ivy_file.read_bytes())

    @property
    def folder_name(self) -> str:
        """Name of the set's folder in the cache."""
        return f"{self.name}-{hashlib.sha256(self.key).hexdigest()[:16]}"


def spark_jars(home: Path | None = None) -> JarSet:
    """Returns the JARs that Spark needs beside its own, by `conf/jars.xml` and its version.

    Raises:
        JarsError: There is no Spark, or one that is not supported.
    """
    if home is None:
        return JarSet.from_file(CHECKOUT / "conf" / "jars.xml")
    names = (_SPARK_CORE.fullmatch(path.name) for path in home.glob("jars/spark-core_*.jar"))
    found = next(filter(None, names), None)
    if found is None:
        raise JarsError(f"{home} has no Spark; set SPARK_HOME to a Spark {SPARKS}, or unset it")
    file = _LISTS.get(found["minor"])
    if file is None or found["scala"] != _SCALA:
        raise JarsError(
            f"{home} is Spark {found['version']} for Scala {found['scala']}; "
            f"set SPARK_HOME to a Spark {SPARKS} for Scala {_SCALA}, or unset it"
        )
    return JarSet.from_file(CHECKOUT / "conf" / file)


def store_jars(uris: Iterable[str | None]) -> list[JarSet]:
    """Returns the JARs that the object stores of some URIs need, as `conf/jars-SCHEME.xml` says.

    A scheme without such a file is left to Spark: the user has its JARs in `--conf`.
    """
    schemes = {uri.partition("://")[0] for uri in uris if uri and "://" in uri}
    files = [CHECKOUT / "conf" / f"jars-{scheme}.xml" for scheme in sorted(schemes)]
    return [JarSet.from_file(file, name=file.stem) for file in files if file.is_file()]


def cache_folder() -> Path:
    """Returns the folder for what can be fetched or built again."""
    if chosen := os.environ.get("GROUPLEDGER_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).absolute() if base else Path.home() / ".cache") / "groupledger"


def pyspark_home() -> Path:
    """Returns the folder of the installed pyspark, which is a whole Spark, without importing it.

    Raises:
        JarsError: pyspark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsError("pyspark is not installed in this Python; start jobs by ./spark-submit.sh")
    return Path(spec.origin).parent


def present(jars: JarSet) -> list[Path]:
    """Returns the JARs of a set, sorted by name; none if they have not been fetched."""
    return sorted((cache_folder() / jars.folder_name).glob("*.jar"))


def fetch(jars: JarSet) -> list[Path]:
    """Returns the JARs of a set, sorted by name; downloads them the first time.

    Safe against interruption (a folder appears complete or not at all) and against other runs that
    fetch at the same time (the second waits).

    Raises:
        JarsError: The cache is not writable, or Ivy could not get every JAR.
    """
    cache = cache_folder()
    folder = cache / jars.folder_name
    if not folder.is_dir():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            # One lock for all sets: they share Ivy's own cache.
            with _locked(cache / "ivy.lock"):
                if not folder.is_dir():
                    _download(jars, cache, folder)
        except OSError as error:
            raise JarsError(
                f"cannot keep JARs in {cache}: {error.strerror}. "
                "Set GROUPLEDGER_CACHE to a writable folder."
            ) from error
    return present(jars)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(jars: JarSet, cache: Path, folder: Path) -> None:
    sys.stderr.write(f"groupledger: fetching JARs into {folder} (once) ...\n")
    sys.stderr.flush()
    for leftover in cache.glob(f"{jars.folder_name}.*.part"):  # of an interrupted run
        shutil.rmtree(leftover, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=f"{jars.folder_name}.", suffix=".part", dir=cache))
    log = cache / f"{jars.folder_name}.log"
    command = [
        _java(),
        "-jar",
        str(_ivy_jar()),
        "-settings",
        str(CHECKOUT / "conf" / "ivysettings.xml"),
        "-cache",  # Ivy's default lies in the home folder, whatever the user chose
        str(cache / "ivy"),
        *jars.arguments,
        "-retrieve",
        # A $ or a bracket in the path would be read as part of the pattern: Ivy runs in the folder.
        "[artifact]-[revision](-[classifier]).[ext]",
    ]
    try:
        with log.open("wb") as output:
            status = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=part,
                check=False,
            ).returncode
        if status != 0 or not any(part.glob("*.jar")):
            raise JarsError(f"{_reason(log)} (all output: {log}). Repair that and run again.")
        part.chmod(0o755)  # mkdtemp's folders are closed to the user that a cluster runs as
        part.rename(folder)
        log.unlink()
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _ivy_jar() -> Path:
    for path in sorted((pyspark_home() / "jars").glob("ivy-*.jar")):
        return path
    raise JarsError("pyspark has no Ivy JAR; reinstall it (remove .venv and run again)")


def _reason(log: Path) -> str:
    """Says in a few words why Ivy failed: what it names as not found, else its first complaint."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    missing = [
        line.removeprefix(":: ").split(":")[0]
        for line in lines
        if line.startswith(":: ") and line.endswith(": not found")
    ]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return f"cannot download {missing[0]}{more}: not found, or the network is not reachable"
    for line in lines:
        if "error" in line.lower() or "exception" in line.lower():
            return f"cannot download the JARs: {line}"
    return "cannot download the JARs"
