"""How a job's process is started: what the JVM is told, and the archive of classes it may use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.runtime import classes, jars, jvm, launch, options

# As Spark's JVM: it ends when its standard input does, and writes its archive then.
_WRITER = "cat >/dev/null; [ -z {content} ] || echo {content} >{part}; exit {status}"


def keep(cache: Path, content: str, status: int) -> None:
    part = classes.unfinished(cache, "classes-1")
    script = _WRITER.format(content=content or "''", part=part, status=status)
    with subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE) as jvm:
        classes.keep(jvm, part)


def test_an_archive_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    keep(tmp_path, "half", status=1)
    keep(tmp_path, "", status=0)
    assert list(tmp_path.iterdir()) == []
    assert classes.kept(tmp_path, "classes-1") is None
    keep(tmp_path, "whole", status=0)
    (archive,) = tmp_path.iterdir()
    assert classes.kept(tmp_path, "classes-1") == archive
    assert classes.kept(tmp_path, "classes-2") is None
    archive.write_text("who")
    assert classes.kept(tmp_path, "classes-1") is None


def test_what_a_killed_run_left_is_cleared_away(tmp_path: Path) -> None:
    old, young = (tmp_path / f"classes-1.{n}.part" for n in (1, 2))
    for part in (old, young):
        part.touch()
    os.utime(old, (0, 0))
    classes.unfinished(tmp_path, "classes-1")
    assert [p.name for p in tmp_path.iterdir()] == [young.name]


def test_an_archive_is_of_one_jvm_and_one_class_path(tmp_path: Path) -> None:
    jar, java = tmp_path / "a.jar", tmp_path / "bin" / "java"
    java.parent.mkdir()
    for file in (jar, java):
        file.touch()
        os.utime(file, (1, 1))
    env = {"JAVA_HOME": str(tmp_path)}
    names = {classes.key([jar], env), classes.key([], env)}
    for file in (jar, java):  # another release in the same place
        os.utime(file, (2, 2))
        names.add(classes.key([jar], env))
    assert len(names) == 4
    assert classes.key([jar], env) in names
    assert classes.key([jar], {}) is None


def test_only_a_job_that_does_everything_makes_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPLEDGER_CACHE", str(tmp_path))
    env = {"JAVA_HOME": str(tmp_path)}
    assert launch.shared_classes([], "sql", env) == ([], {})
    made, new = launch.shared_classes([], "pipeline", env)
    part = Path(new[classes.NEW])
    assert made[0] == f"-XX:ArchiveClassesAtExit={part}"
    archive = part.with_name(f"{part.name.partition('.')[0]}.0.jsa")
    archive.touch()
    for job in ("sql", "pipeline"):
        used, new = launch.shared_classes([], job, env)
        assert (used[0], new) == (f"-XX:SharedArchiveFile={archive}", {})


@pytest.mark.parametrize(
    ("line", "has_tables", "is_brief"),
    [
        ("pipeline --records x", True, True),
        ("pipeline --records x", False, False),
        ("history", True, True),
        ("sql --query x", True, True),
        ("sql --serve", True, False),
        ("maintain", True, False),
    ],
)
def test_a_run_after_others_is_brief(
    tmp_path: Path, line: str, *, has_tables: bool, is_brief: bool
) -> None:
    if has_tables:
        (tmp_path / "bronze" / "records").mkdir(parents=True)
    chosen = options.parse([*line.split(), "--lakehouse", str(tmp_path)])
    assert launch.is_brief(chosen) is is_brief


def test_a_brief_run_has_as_much_room_for_code_as_any() -> None:
    rooms = {_room_for_code(given) for given in ((), launch._QUICK_COMPILER)}
    assert len(rooms) == 1


def _room_for_code(given: tuple[str, ...]) -> int:
    java = Path(os.environ["JAVA_HOME"], "bin", "java")
    line = [java, *given, "-XX:+PrintFlagsFinal", "-version"]
    told = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    (size,) = re.findall(r" ReservedCodeCacheSize += (\d+)", told)
    return int(size)


def test_on_this_machine_jars_are_where_the_jvm_shares_classes() -> None:
    conf = {"spark.driver.extraClassPath": "/their.jar", "spark.jars": "/more.jar"}
    here = launch.Target("local[*]", None)
    line = launch.spark_arguments(here, conf, [Path("/a.jar"), Path("/b.jar")], None, ["-Xa"])
    assert "spark.driver.extraClassPath=/a.jar:/b.jar:/their.jar" in line
    assert line[line.index("--jars") + 1] == "/more.jar"
    assert any(word.startswith("spark.driver.extraJavaOptions=-Xa ") for word in line)
    cluster = launch.Target("spark://somewhere:7077", None)
    line = launch.spark_arguments(cluster, {}, [Path("/a.jar")], None)
    assert line[line.index("--jars") + 1] == "/a.jar"
    assert not any("extraClassPath" in word for word in line)


@pytest.fixture
def no_jvm(tmp_path: Path) -> Path:
    """A folder that stands for a Spark whose JVM ends at once, and notes that it was there."""
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    submit.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("ahead", ["1", None])
def test_a_process_begins_with_the_jvm_where_the_launcher_says_so(
    no_jvm: Path, ahead: str | None
) -> None:
    boot = jars.CHECKOUT / "jobs" / "runtime" / "boot.py"
    env = {k: v for k, v in os.environ.items() if k != "PYSPARK_GATEWAY_PORT"}
    env |= {"SPARK_HOME": str(no_jvm), **({jvm.AHEAD: ahead} if ahead else {})}
    # Help, which needs none, comes once all is loaded.
    subprocess.run([sys.executable, str(boot), "pipeline", "--help"], check=True, env=env)
    assert (no_jvm / "started").exists() == bool(ahead)


def test_only_a_process_that_needs_no_code_shipped_begins_with_the_jvm() -> None:
    chosen = options.parse(["pipeline", "--records", "x.parquet"])
    for master, is_ahead in (("local[2]", True), ("spark://host:7077", False)):
        target = launch.choose_target(master, {})
        _, env = launch.job_process(target, ["pipeline"], chosen)
        assert (jvm.AHEAD in env) == is_ahead


def test_a_jvm_that_does_not_start_is_told_where_it_is_asked_for(no_jvm: Path) -> None:
    code = """
from pyspark.errors import PySparkRuntimeError
from jobs.runtime import jvm

jvm.begin()
try:
    jvm.gateway()
except PySparkRuntimeError as error:
    print(error.getCondition())
"""
    env = {k: v for k, v in os.environ.items() if k != "PYSPARK_GATEWAY_PORT"}
    env["SPARK_HOME"] = str(no_jvm)
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, check=True, env=env, capture_output=True, text=True)
    assert told.stdout.split() == ["JAVA_GATEWAY_EXITED"]
