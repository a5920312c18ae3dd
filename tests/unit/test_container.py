"""The images: their files have no finding, and what they are made of is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launch.jars import pyspark_home, spark_jars
from tests.support.cluster import FEW_TASKS

ROOT = Path(__file__).parents[2]
FOLDER = "/opt/groupledger"
HERE = ROOT / "Dockerfile"
ON_KUBERNETES = ROOT / "examples" / "scheduling" / "kubernetes" / "Dockerfile"
EACH = pytest.mark.parametrize("file", [HERE, ON_KUBERNETES], ids=["plain", "kubernetes"])


def instructions(file: Path) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, each with what it is told."""
    text = re.sub(r"^#.*\n", "", file.read_text("utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", "", text).splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line.strip()]


@EACH
def test_hadolint_finds_nothing(file: Path) -> None:
    hadolint = Path(sys.prefix, "bin", "hadolint")
    done = subprocess.run([hadolint, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@EACH
def test_the_image_runs_as_nobody_in_particular_and_is_pinned(file: Path) -> None:
    said = instructions(file)
    assert re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+[\w.-]*", dict(said)["FROM"])
    assert re.fullmatch(r"[1-9]\d+", dict(said)["USER"])
    names = [name for name, _ in said]
    assert "RUN" not in names[len(names) - 1 - names[::-1].index("USER") :]


def test_what_is_fetched_comes_before_the_code() -> None:
    """A change of the code fetches nothing again."""
    said = instructions(HERE)
    code = said.index(("COPY", ". ."))
    fetched = next(i for i, (name, told) in enumerate(said) if "ensure_venv" in told)
    assert fetched < code
    before = {word for name, told in said[:code] if name == "COPY" for word in told.split()[:-1]}
    assert before == {
        *("requirements.lock", "conf/bootstrap.sh", "conf/ivysettings.xml", "conf/jars.xml"),
        *("launch/__init__.py", "launch/jars.py", "launch/signals.py"),
    }


def test_the_first_layers_find_what_they_fetch(tmp_path: Path) -> None:
    """With no more files than these, the list of the JARs is that of the whole checkout."""
    before = [told for name, told in instructions(HERE) if name == "COPY" and told != ". ."]
    for told in before:
        *files, target = told.split()
        for file in files:
            (tmp_path / target).mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, tmp_path / target)
    script = "from launch import jars; print(jars.spark_jars().folder_name)"
    line = [sys.executable, "-c", script]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == spark_jars().folder_name


def copied(target: Path) -> None:
    """Copy what .dockerignore lets through, of the files that git knows."""
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    wanted = [line[1:] for line in lines if line.startswith("!")]
    listed = subprocess.run(
        ["git", "ls-files"],  # noqa: S607 - whichever there is
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if any(name == path or name.startswith(f"{path}/") for path in wanted):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def build(file: Path, tmp_path: Path, places: dict[str, Path], env: dict[str, str]) -> Path:
    """Do the steps of a Dockerfile but those that only root of a Debian can do.

    Args:
        file: the Dockerfile.
        tmp_path: a folder for all of it.
        places: where folders of the image are, beside that of the application.
        env: the environment of what it begins with; has that of the image afterwards.

    Returns:
        The folder of the application.
    """
    home = tmp_path / "groupledger"
    home.mkdir()
    copied(home)
    places = {FOLDER: home, "/tmp": tmp_path, **places}  # noqa: S108
    for name, told in instructions(file):
        words = re.sub("|".join(places), lambda found: str(places[found[0]]), told)
        if name == "ENV":
            variable, _, value = words.partition("=")
            env[variable] = value
        elif name == "RUN" and not re.match("apt-get|useradd", told):
            subprocess.run(["/bin/sh", "-ec", words], cwd=home, env=env, check=True)
    # What it has made is used without network.
    env |= dict.fromkeys(("http_proxy", "https_proxy", "PIP_INDEX_URL"), "http://127.0.0.1:9")
    return home


def show_demo(home: Path, folder: Path, env: dict[str, str], *options: str) -> None:
    lakehouse = folder / "data"
    done = subprocess.run(
        [home / "spark-submit.sh", "demo", "--lakehouse", lakehouse, *options],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (lakehouse / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_its_steps_in_an_empty_folder(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "SPARK_HOME", "TZ"}}
    home = build(HERE, tmp_path, {}, env)
    show_demo(home, tmp_path, env)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_the_steps_of_the_one_for_kubernetes(tmp_path: Path) -> None:
    """The Spark of the image it begins with is that of pip; executors are processes beside it."""
    spark = shutil.copytree(pyspark_home(), tmp_path / "spark")
    env = {k: v for k, v in os.environ.items() if "PYTHON" not in k and k != "TZ"}
    env["SPARK_HOME"] = str(spark)
    home = build(ON_KUBERNETES, tmp_path, {"/opt/spark": spark}, env)
    assert list(spark.glob("jars/delta-spark_*.jar"))
    assert list(spark.glob("jars/hadoop-aws-*.jar"))
    show_demo(home, tmp_path, env, "--master", "local-cluster[2,1,1024]", "--conf", FEW_TASKS)
