"""What pip installs: the wheel, in an environment of its own, run from other folders.

The environment holds the wheel alone. The packages that it needs are those of the tests', by a path
file, since to install them anew takes 600 MB: that pip finds the same ones is what the lock is for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# As for a user that has none of our settings.
ENV = {
    name: value
    for name, value in os.environ.items()
    if name not in {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "TZ"}
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", folder, ROOT)
    (built,) = folder.glob("groupledger-*.whl")
    return built


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install it, and give the command."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, symlinks=True)
    pip("--python", folder, "install", "--no-deps", "--no-index", wheel)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(packages, "tests.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "groupledger"


def pip(*arguments: object) -> None:
    line = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*line, *map(str, arguments)], check=True)


def said(command: Path, folder: Path, *arguments: object, **env: str) -> str:
    done = subprocess.run(
        [command, *map(str, arguments)],
        cwd=folder,
        env=ENV | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_brings_one_package_with_all_that_git_knows_of_the_product(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in names} == {"groupledger"}
    listed = subprocess.run(
        ["git", "ls-files"],  # noqa: S607 - whichever there is
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    other = {"benchmarks", "docs", "examples", "tests"}
    folders = [name for name in listed if "/" in name and not name.startswith(".")]
    ours = {name for name in folders if name.partition("/")[0] not in other}
    expected = {
        name if name.startswith("groupledger/") else f"groupledger/app/{name}" for name in ours
    }
    recording = "groupledger/app/examples/recordings/4.3.1-storm.parquet"
    assert expected | {recording} <= names


def test_it_is_the_same_program(command: Path, tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()  # what lies in the working folder is not ours
    (tmp_path / "schemas" / "__init__.py").write_text("raise AssertionError")
    assert said(command, tmp_path, "--version").startswith("groupledger 0.")
    assert "pipeline" in said(command, tmp_path, "--help")
    text = said(command, tmp_path, "pipeline", "--help")
    assert "groupledger pipeline --records" in text
    assert "spark-submit" not in text
    assert "_groupledger" in said(command, tmp_path, "completion", "bash")


def test_without_a_java_that_fits_a_line_says_so(command: Path, tmp_path: Path) -> None:
    """Where this machine has another one, that is found."""
    (tmp_path / "bash").write_text("#!/bin/sh\necho 'groupledger: needs Java' >&2\nexit 1\n")
    (tmp_path / "bash").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [command, "decode"],
        env=ENV | {"PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "groupledger: needs Java\n")


@pytest.mark.slow
def test_it_runs_in_another_folder(command: Path, tmp_path: Path) -> None:
    said(command, tmp_path, "demo")
    assert (tmp_path / "demo-lakehouse" / "report.html").is_file()
    counted = "SELECT count(*) AS n FROM gold.group_states"
    env = {"GROUPLEDGER_LAKEHOUSE": "demo-lakehouse"}
    out = said(command, tmp_path, "sql", "--format", "csv", "--query", counted, **env)
    assert int(out.split()[1]) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["demo-lakehouse"]
