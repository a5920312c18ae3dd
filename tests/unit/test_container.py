"""The image: its file has no finding, and what it is made of is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = "/opt/groupledger"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, each with what it is told."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", "", text).splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.prefix, "bin", "hadolint")
    done = subprocess.run(
        [hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_runs_as_nobody_in_particular_and_is_pinned() -> None:
    said = instructions()
    assert re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+[\w.-]*", dict(said)["FROM"])
    assert re.fullmatch(r"[1-9]\d+", dict(said)["USER"])
    assert [name for name, _ in said].index("USER") > max(
        at for at, (name, _) in enumerate(said) if name == "RUN"
    )


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


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_its_steps_in_an_empty_folder(tmp_path: Path) -> None:
    """All but those that only root of a Debian can do; what they make is used without network."""
    home = tmp_path / "groupledger"
    home.mkdir()
    copied(home)
    env = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "SPARK_HOME", "TZ"}}
    for name, told in instructions():
        words = told.replace(FOLDER, str(home)).replace("/tmp/", f"{tmp_path}/")  # noqa: S108
        if name == "ENV":
            variable, _, value = words.partition("=")
            env[variable] = value
        elif name == "RUN" and not re.match("apt-get|useradd", told):
            subprocess.run(["/bin/sh", "-ec", words], cwd=home, env=env, check=True)
    nowhere = "http://127.0.0.1:9"
    env |= dict.fromkeys(("http_proxy", "https_proxy", "PIP_INDEX_URL"), nowhere)
    lakehouse = tmp_path / "data"
    done = subprocess.run(
        [home / "spark-submit.sh", "demo", "--lakehouse", lakehouse],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (lakehouse / "report.html").is_file()
