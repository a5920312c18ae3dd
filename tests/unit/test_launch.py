"""How a job's process is started: the options of the JVM."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from launch import command_line, jars, submit


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
    assert submit.is_brief(chosen) is is_brief


def test_a_brief_run_has_as_much_room_for_code_as_any() -> None:
    rooms = {_room_for_code(given) for given in ((), submit._QUICK_COMPILER)}
    assert len(rooms) == 1


@pytest.mark.parametrize("spark_home", [None, jars.pyspark_home()], ids=["own", "of the user"])
@pytest.mark.parametrize(("every", "ends"), [([], False), (["--every", "1h"], True)])
def test_a_process_that_stays_ends_when_memory_runs_out(
    spark_home: Path | None, every: list[str], *, ends: bool
) -> None:
    argv = ["pipeline", "--records", "x", *every]
    target = submit.Target("local[*]", spark_home)
    command, env = submit.job_process(target, argv, command_line.parse(argv))
    started = [*command, env.get("PYSPARK_SUBMIT_ARGS", "")]
    assert any("-XX:+ExitOnOutOfMemoryError" in word for word in started) is ends


def _room_for_code(given: tuple[str, ...]) -> int:
    java = Path(os.environ["JAVA_HOME"], "bin", "java")
    line = [java, *given, "-XX:+PrintFlagsFinal", "-version"]
    output = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    (size,) = re.findall(r" ReservedCodeCacheSize += (\d+)", output)
    return int(size)


def test_on_this_machine_jars_are_on_the_class_path() -> None:
    conf = {"spark.driver.extraClassPath": "/their.jar", "spark.jars": "/more.jar"}
    here = submit.Target("local[*]", None)
    line = submit.spark_arguments(here, conf, [Path("/a.jar"), Path("/b.jar")], None, ["-Xa"])
    assert "spark.driver.extraClassPath=/a.jar:/b.jar:/their.jar" in line
    assert line[line.index("--jars") + 1] == "/more.jar"
    assert any(word.startswith("spark.driver.extraJavaOptions=-Xa ") for word in line)
    cluster = submit.Target("spark://somewhere:7077", None)
    line = submit.spark_arguments(cluster, {}, [Path("/a.jar")], None)
    assert line[line.index("--jars") + 1] == "/a.jar"
    assert not any("extraClassPath" in word for word in line)


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("local[*]", None)]
)
def test_a_shuffle_has_a_task_for_each_core(master: str, cores: int | None) -> None:
    line = submit.spark_arguments(submit.Target(master, None), {}, [], None)
    assert f"spark.sql.shuffle.partitions={cores or os.cpu_count()}" in line
    own = {"spark.sql.shuffle.partitions": "7"}
    line = submit.spark_arguments(submit.Target(master, None), own, [], None)
    assert [word for word in line if "shuffle.partitions=" in word] == [
        "spark.sql.shuffle.partitions=7"  # and no step has another
    ]


def _spark(home: Path, core: str) -> Path:
    (home / "jars").mkdir(parents=True)
    (home / "jars" / f"spark-core_{core}.jar").touch()
    return home


@pytest.mark.parametrize(
    ("core", "said"),
    [
        (None, "has no Spark; set SPARK_HOME to a Spark 4.0, 4.1 or 4.2, or unset it"),
        (
            "2.12-3.5.9",
            "is Spark 3.5.9 for Scala 2.12; set SPARK_HOME to a Spark 4.0, 4.1 or 4.2 for",
        ),
        (
            "2.13-4.3.0",
            "is Spark 4.3.0 for Scala 2.13; set SPARK_HOME to a Spark 4.0, 4.1 or 4.2 for",
        ),
        (
            "3-4.1.1",
            "is Spark 4.1.1 for Scala 3; set SPARK_HOME to a Spark 4.0, 4.1 or 4.2 for Scala",
        ),
    ],
)
def test_a_spark_that_does_not_fit_is_refused_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, core: str | None, said: str
) -> None:
    home = tmp_path if core is None else _spark(tmp_path, core)
    monkeypatch.setenv("SPARK_HOME", str(home))
    with pytest.raises(SystemExit) as refused:
        submit.main(["sql", "--query", "SELECT 1"])
    assert str(refused.value).startswith(f"groupledger: cannot start sql: {home} {said}")
    assert "\n" not in str(refused.value)


def _versions(listed: jars.JarSet) -> dict[str, str]:
    tree = ET.fromstring(listed.key)  # noqa: S314 - our own file
    return {d.get("name", ""): d.get("rev", "") for d in tree.iter("dependency")}


@pytest.mark.parametrize("core", ["2.13-4.0.5", "2.13-4.1.4", "2.13-4.2.1"])
def test_each_spark_has_jars_of_its_own_and_of_one_delta_and_kafka(
    tmp_path: Path, core: str
) -> None:
    minor = re.sub(r".*-(\d+\.\d+)\..*", r"\1", core)
    ours = _versions(jars.spark_jars())
    theirs = _versions(jars.spark_jars(_spark(tmp_path, core)))
    of_spark = [name for name in theirs if name.startswith("spark-")]
    assert theirs["spark-sql-kafka-0-10_2.13"].startswith(f"{minor}.")
    assert {
        name.replace(f"_{minor}_", "_4.1_"): version
        for name, version in theirs.items()
        if name not in of_spark
    } == {name: version for name, version in ours.items() if name not in of_spark}


def test_a_python_of_executors_is_not_that_of_the_driver() -> None:
    cluster = submit.Target("spark://somewhere:7077", None)
    line = submit.spark_arguments(cluster, {"spark.pyspark.python": "./env/bin/python"}, [], None)
    assert f"spark.pyspark.driver.python={sys.executable}" in line
    assert not any(
        "driver.python" in word for word in submit.spark_arguments(cluster, {}, [], None)
    )
