"""How a job's process is started: the options of the JVM."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.runtime import command_line, launch


@pytest.mark.parametrize(
    ("line", "has_tables", "is_brief"),
    [
        ("pipeline --records x", True, True),
        ("pipeline --records x", False, False),
        ("history", True, True),
        ("sql --query x", True, True),
        ("sql --serve", True, False),
        ("maintain", True, False),
        ("maintain --dry-run", True, True),
    ],
)
def test_a_run_after_others_is_brief(
    tmp_path: Path, line: str, *, has_tables: bool, is_brief: bool
) -> None:
    if has_tables:
        (tmp_path / "bronze" / "records").mkdir(parents=True)
    chosen = command_line.parse([*line.split(), "--lakehouse", str(tmp_path)])
    assert launch.is_brief(chosen) is is_brief


def test_a_brief_run_has_as_much_room_for_code_as_any() -> None:
    rooms = {_room_for_code(given) for given in ((), launch._QUICK_COMPILER)}
    assert len(rooms) == 1


def _room_for_code(given: tuple[str, ...]) -> int:
    java = Path(os.environ["JAVA_HOME"], "bin", "java")
    line = [java, *given, "-XX:+PrintFlagsFinal", "-version"]
    output = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    (size,) = re.findall(r" ReservedCodeCacheSize += (\d+)", output)
    return int(size)


def test_on_this_machine_jars_are_on_the_class_path() -> None:
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


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("local[*]", None)]
)
def test_a_shuffle_has_a_task_for_each_core(master: str, cores: int | None) -> None:
    line = launch.spark_arguments(launch.Target(master, None), {}, [], None)
    assert f"spark.sql.shuffle.partitions={cores or os.cpu_count()}" in line
    own = {"spark.sql.shuffle.partitions": "7"}
    line = launch.spark_arguments(launch.Target(master, None), own, [], None)
    assert "spark.sql.shuffle.partitions=7" in line


def test_a_python_of_executors_is_not_that_of_the_driver() -> None:
    cluster = launch.Target("spark://somewhere:7077", None)
    line = launch.spark_arguments(cluster, {"spark.pyspark.python": "./env/bin/python"}, [], None)
    assert f"spark.pyspark.driver.python={sys.executable}" in line
    assert not any(
        "driver.python" in word for word in launch.spark_arguments(cluster, {}, [], None)
    )
