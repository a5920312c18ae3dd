"""Environments of Python beside that of the tests, each made the first time from a lock file."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

from launch.jars import cache_folder

LOCKS = Path(__file__).with_name("locks")


def environment(name: str) -> Path:
    """Return the folder of an environment, made of `locks/NAME.lock` unless it is there."""
    lock = LOCKS / f"{name}.lock"
    key = hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    folder = cache_folder() / f"{name}-{key}"
    done = folder / "complete"
    if not done.is_file():
        venv.create(folder, with_pip=True, clear=True)
        python = str(folder / "bin" / "python")
        line = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--require-hashes"]
        line += ["-r", str(lock)]
        subprocess.run(line, check=True, stdout=sys.stderr)
        done.touch()
    return folder


def package(name: str, module: str) -> Path:
    """Return the folder of a package that an environment has."""
    (found,) = environment(name).glob(f"lib/python3.*/site-packages/{module}")
    return found
