"""Writes what a cluster needs of us that has nothing of ours: `./spark-submit.sh package`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from launch import jars
from launch.shipping import CONF, FOR_PYTHON, UTC, build_archive, read_properties

ARCHIVE = "environment.tar.gz"
_CODE = "groupledger.zip"
_PROPERTIES = "spark.conf"
# Where executors unpack the archive, below their working folder.
_UNPACKED = "environment"
# A cluster has its own Spark; pip installs nothing there.
_LEFT_OUT = ("*/site-packages/pyspark/*", "*/site-packages/pip/*")


class PackageError(Exception):
    """What a cluster needs cannot be written; the message is one line that says what to do."""


def package(out: str, lakehouse: str) -> str:
    """Write the code, the environment, the JARs and the settings; return how to use them.

    Raises:
        PackageError: there is no environment to pack, or the folder cannot be written.
        JarsError: JARs are missing and could not be fetched.
    """
    if sys.prefix == sys.base_prefix:
        raise PackageError(
            "this Python is in no virtual environment that could be packed; use ./spark-submit.sh"
        )
    folder = Path(out).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _write(folder, lakehouse)
    except OSError as error:
        raise PackageError(f"--out {out}: cannot be written: {error.strerror or error}") from error


def _write(folder: Path, lakehouse: str) -> str:
    for name in ("jars", "jobs"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    sets = [jars.spark_jars(), *jars.store_jars([lakehouse])]
    found = [path for each in sets for path in jars.fetch(each)]
    for path in found:
        shutil.copyfile(path, folder / "jars" / path.name)
    shutil.copyfile(build_archive(jars.cache_folder()), folder / _CODE)
    for path in (jars.CHECKOUT / "jobs").glob("[a-z]*.py"):
        shutil.copyfile(path, folder / "jobs" / path.name)
    settings = read_properties(CONF / "spark-defaults.conf")
    settings |= {f"spark.{end}.extraJavaOptions": UTC for end in ("driver", "executor")}
    settings["spark.pyspark.python"] = f"./{_UNPACKED}/bin/python"
    lines = [f"{key} {value}\n" for key, value in settings.items()]
    (folder / _PROPERTIES).write_text("".join(lines), encoding="utf-8")
    _pack(folder / ARCHIVE)
    return _line(folder, [path.name for path in found], lakehouse)


def _pack(target: Path) -> None:
    """Pack the environment that runs this, as a whole or not at all."""
    import venv_pack  # noqa: PLC0415 - only here

    part = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        venv_pack.pack(
            prefix=sys.prefix,
            output=str(part),
            format="tar.gz",
            force=True,
            filters=[("exclude", pattern) for pattern in _LEFT_OUT],
        )
        part.chmod(0o644)  # a cluster may run as another user
        part.replace(target)
    except venv_pack.VenvPackException as error:
        raise PackageError(f"{sys.prefix} cannot be packed: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _line(folder: Path, names: list[str], lakehouse: str) -> str:
    every_jar = ",".join(f"jars/{name}" for name in names)
    python = shlex.quote(sys.executable)
    return f"""\
cd {shlex.quote(str(folder))}
{" ".join(f"{name}={value}" for name, value in FOR_PYTHON.items())} \\
spark-submit --master MASTER --properties-file {_PROPERTIES} --load-spark-defaults \\
  --py-files {_CODE} --archives {ARCHIVE}#{_UNPACKED} \\
  --jars {every_jar} \\
  --conf spark.pyspark.driver.python={python} \\
  jobs/pipeline.py --bootstrap-servers HOST:PORT --lakehouse {shlex.quote(lakehouse)}"""
