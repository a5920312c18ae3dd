"""Spark's classes, kept by one run and used by the next, by a real JVM."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from jobs.runtime import jars, launch, options

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "examples" / "recordings" / "4.3.1-storm.parquet"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a cache with the JARs, which are not fetched again, and nothing else."""
    (found,) = {jar.parent for jar in jars.fetch(jars.spark_jars())}
    path = tmp_path / "cache"
    path.mkdir()
    (path / found.name).symlink_to(found)
    monkeypatch.setenv("GROUPLEDGER_CACHE", str(path))
    return path


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    chosen = options.parse(list(argv))
    command, env = launch.job_process(launch.choose_target(None, {}), argv, chosen)
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.skipif("JAVA_HOME" not in os.environ, reason="archives are of a JAVA_HOME")
def test_the_first_run_keeps_classes_and_the_next_uses_them(cache: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "lakehouse")
    query = ("sql", "--lakehouse", root, "--query", "SELECT count(*) AS n FROM gold.group_health")
    # Java refuses to start if there is an archive that it cannot use.
    only = ("--conf", "spark.driver.extraJavaOptions=-Xshare:on")

    refused = run("pipeline", "--records", str(tmp_path / "nothing"), "--lakehouse", root)
    assert refused.returncode == 1
    # What Java tells of an error it tells when the session has ended, too.
    below = tmp_path / "file"
    below.touch()
    nowhere = run("pipeline", "--records", str(RECORDING), "--lakehouse", str(below / "lakehouse"))
    assert nowhere.returncode == 1
    assert "no folder can be made there" in nowhere.stderr
    assert "Traceback" not in nowhere.stderr
    assert not list(cache.glob("classes-*"))

    first = run("pipeline", "--records", str(RECORDING), "--lakehouse", root)
    assert first.returncode == 0
    assert first.stderr.endswith("keeping Spark's classes, to start faster (once) ...\n")
    (archive,) = cache.glob("classes-*")
    assert archive.suffix == ".jsa"
    assert archive.stat().st_size > 10_000_000

    used = run(*query, *only)
    assert used.returncode == 0
    assert "keeping" not in used.stderr
    assert "warning" not in used.stdout + used.stderr

    archive.chmod(0o644)
    archive.write_bytes(archive.read_bytes()[:1_000_000])
    without = run(*query)
    assert (without.returncode, without.stdout) == (0, used.stdout)
