"""Every Python, Java and Spark that is supported gives the same tables.

``./run-tests.sh -m matrix`` sets up an environment for each; what the machine lacks is skipped by
name, so that the last lines say what was not tried.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import TopicPartition

from tests.conftest import RECORDINGS
from tests.spark.test_golden import GOLDEN, differing
from tests.support import clients, golden
from tests.support.broker import Broker
from tests.support.environments import package

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(1_800)]

ROOT = Path(__file__).parents[2]
RECORDING = "2.2.2-default"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
JAVAS = ("17", "21")
SPARKS = ("4.0", "4.2")  # beside the one of pyproject.toml


def python(version: str) -> str:
    """Find a Python, on the path or where pyenv keeps them."""
    kept = Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")
    for candidate in (shutil.which(f"python{version}"), *map(str, sorted(kept))):
        ask = [candidate or "false", "-c", "import ensurepip, sys; print(sys.version)"]
        asked = subprocess.run(ask, capture_output=True, text=True, check=False)
        if candidate and asked.stdout.startswith(f"{version}."):
            return candidate
    pytest.skip(f"no Python {version} on this machine")


def java(major: str) -> str:
    """Find a Java, in JAVA_HOME or where Debian keeps them."""
    homes = [os.environ["JAVA_HOME"], *map(str, Path("/usr/lib/jvm").glob("*"))]
    for home in homes:
        release = Path(home, "release")
        if release.is_file() and f'JAVA_VERSION="{major}.' in release.read_text("utf-8"):
            return home
    pytest.skip(f"no Java {major} on this machine")


def run(home: Path, *argv: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a job by the front door of a checkout, with nothing of the tests' own environment."""
    ours = re.compile("PYSPARK|PYTHON|SPARK|GROUPLEDGER_(?!CACHE)|TZ$")
    kept = {name: value for name, value in os.environ.items() if not ours.match(name)}
    return subprocess.run(
        [home / "spark-submit.sh", *map(str, argv)],
        env=kept | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def assert_same_tables(home: Path, lakehouse: Path, **variables: str) -> None:
    """Run the pipeline on a recording, and compare all rows with those of the tests' own Spark."""
    recording = RECORDINGS / f"{RECORDING}.parquet"
    argv = ("pipeline", "--records", recording, "--lakehouse", lakehouse, "--strict")
    done = run(home, *argv, **variables)
    assert done.returncode == 0, done.stderr
    now, before = golden.tables(lakehouse), GOLDEN["digests"][RECORDING]["once"]
    differences = [
        difference
        for table in dict.fromkeys([*before, *now])
        for difference in differing(table, before.get(table, "0"), now.get(table, []))
    ]
    assert not differences, "\n".join(["", *differences])


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A copy of the checkout, that sets itself up: its environment takes 2 GB until it is gone."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607 - whichever there is
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    home = tmp_path / "checkout"
    for name in listed.stdout.rstrip("\0").split("\0"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, home / name)
    yield home
    shutil.rmtree(home)


@pytest.mark.parametrize("version", PYTHONS)
def test_python(checkout: Path, tmp_path: Path, version: str) -> None:
    environ = {"PYTHON": python(version), "JAVA_HOME": java(JAVAS[0])}
    assert_same_tables(checkout, tmp_path / "lakehouse", **environ)
    used = checkout / ".venv" / "bin" / "python"
    said = subprocess.run([used, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"Python {version}.")


@pytest.mark.parametrize("major", JAVAS)
def test_java(tmp_path: Path, major: str) -> None:
    assert_same_tables(ROOT, tmp_path / "lakehouse", JAVA_HOME=java(major))


@pytest.mark.parametrize("major", JAVAS)
@pytest.mark.parametrize("minor", SPARKS)
def test_spark(tmp_path: Path, minor: str, major: str) -> None:
    home = package(f"spark-{minor}", "pyspark")
    environ = {"SPARK_HOME": str(home), "JAVA_HOME": java(major)}
    assert_same_tables(ROOT, tmp_path / "lakehouse", **environ)


@pytest.mark.parametrize("minor", SPARKS)
def test_spark_reads_kafka(broker: Broker, tmp_path: Path, minor: str) -> None:
    clients.create_topic(broker.bootstrap, f"of-{minor}", partitions=1)
    clients.commit(broker.bootstrap, f"group-{minor}", {TopicPartition(f"of-{minor}", 0): 7})
    home = package(f"spark-{minor}", "pyspark")
    environ = {"SPARK_HOME": str(home), "JAVA_HOME": java(JAVAS[0])}
    where = ("--lakehouse", tmp_path / "lakehouse")
    read = ("pipeline", "--bootstrap-servers", broker.bootstrap, *where, "--strict")
    done = run(ROOT, *read, **environ)
    assert done.returncode == 0, done.stderr
    # What one Spark has written, another reads.
    query = f"SELECT committed_offset FROM silver.offset_commits WHERE group_id = 'group-{minor}'"
    asked = run(ROOT, "sql", *where, "--query", query, "--json", JAVA_HOME=environ["JAVA_HOME"])
    assert asked.returncode == 0, asked.stderr
    assert '"committed_offset": 7' in asked.stdout


def test_an_older_python_is_refused_with_a_line(checkout: Path) -> None:
    done = run(checkout, "sql", "--query", "SELECT 1", PYTHON=python("3.9"))
    assert done.returncode == 1
    assert done.stderr.startswith("groupledger: needs Python 3.10 to 3.14; found Python 3.9 ")
    assert done.stderr.count("\n") == 1
