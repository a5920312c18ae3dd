"""The schedules of examples/scheduling: what they run are commands that the jobs accept."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from examples.scheduling import own_spark
from jobs.runtime import jars
from jobs.runtime.command_line import parse
from jobs.runtime.launch import CONF, read_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobs.runtime.options import Options

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SCHEDULES = EXAMPLES / "scheduling"
CRON = re.compile(r"(?P<when>(?:\S+ ){4}\S+) (?P<command>.+)")


def accepted(arguments: list[str]) -> Options:
    """Parse arguments as a job does, the files of other machines being those of the examples."""
    here = {
        "/etc/groupledger.toml": str(EXAMPLES / "groupledger.toml"),
        "/etc/groupledger/groupledger.toml": str(EXAMPLES / "groupledger.toml"),
        "/opt/groupledger/examples/kafka-sasl.properties": str(EXAMPLES / "kafka-sasl.properties"),
    }
    return parse([here.get(argument, argument) for argument in arguments])


def crontab() -> list[tuple[str, str]]:
    lines = (SCHEDULES / "crontab").read_text("utf-8").splitlines()
    matches = [CRON.fullmatch(line) for line in lines if line and not line.startswith("#")]
    return [(m["when"], m["command"]) for m in matches if m is not None]


def job_of(command: str) -> list[str]:
    words = shlex.split(command.partition(">>")[0])
    return words[words.index("/opt/groupledger/spark-submit.sh") + 1 :]


def jar_versions() -> dict[str, str]:
    listed = ET.parse(CONF / "jars.xml").getroot().iter("dependency")  # noqa: S314 - our own file
    return {f"{d.get('org')}:{d.get('name')}": d.get("rev", "") for d in listed}


def load(name: str) -> Any:  # noqa: ANN401 - whatever the file holds
    text = (SCHEDULES / name).read_text("utf-8")
    return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)


def names_in(module: ast.Module) -> dict[str, Any]:
    """Return the values of constants that a module sets."""
    found = {}
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


# -- cron ------------------------------------------------------------------------------------------


def test_the_crontab_runs_jobs() -> None:
    jobs = [accepted(job_of(command)) for _, command in crontab()]
    assert [job.job for job in jobs] == ["pipeline", "maintain"]
    assert jobs[0].strict
    # cron takes a percent sign for the end of the line.
    assert all("%" not in command for _, command in crontab())


@pytest.fixture
def cron(tmp_path: Path) -> Callable[[int], subprocess.Popen[str]]:
    """Run the first line of the crontab with a job that takes a while, then a given status."""
    (tmp_path / "spark-submit.sh").write_text(
        '#!/bin/sh\necho run >>"$0.runs"\n'
        'while [ -e "$0.wait" ]; do sleep 0.05; done\nexit $STATUS\n'
    )
    (tmp_path / "spark-submit.sh").chmod(0o755)
    command = crontab()[0][1]
    for path in ("/opt/groupledger", "/var/lock", "/var/log"):
        command = command.replace(path, str(tmp_path))

    def start(status: int) -> subprocess.Popen[str]:
        env = {**os.environ, "STATUS": str(status)}
        line = ["/bin/sh", "-c", command]
        return subprocess.Popen(line, env=env, stdout=subprocess.PIPE, text=True)

    return start


def test_two_runs_of_cron_do_not_meet(
    cron: Callable[[int], subprocess.Popen[str]], tmp_path: Path
) -> None:
    wait, runs = tmp_path / "spark-submit.sh.wait", tmp_path / "spark-submit.sh.runs"
    wait.touch()
    first = cron(0)
    while not runs.exists():
        assert first.poll() is None
    second = cron(0)
    assert second.communicate(timeout=20)[0] == ""
    wait.unlink()
    assert first.communicate(timeout=20)[0] == ""
    assert (first.returncode, second.returncode) == (0, 0)
    assert runs.read_text() == "run\n"


def test_cron_says_how_a_run_failed(cron: Callable[[int], subprocess.Popen[str]]) -> None:
    assert "exit status 3" in cron(3).communicate(timeout=20)[0]


# -- Airflow ---------------------------------------------------------------------------------------


def test_the_dags_run_jobs_with_our_jars() -> None:
    text = (SCHEDULES / "airflow_dag.py").read_text("utf-8")
    module = ast.parse(text)
    versions = jar_versions()
    for package in names_in(module)["PACKAGES"]:
        name, _, version = package.rpartition(":")
        assert versions[name] == version
    (schedules,) = (
        node.value
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SCHEDULES"
    )
    config = str(EXAMPLES / "groupledger.toml")
    given = eval(ast.unparse(schedules), {"CONFIG": config})  # noqa: S307 - our own file
    jobs = [accepted([job, *arguments]).job for job, (_, arguments) in given.items()]
    assert jobs == list(given) == ["pipeline", "maintain"]
    compile(text, "airflow_dag.py", "exec")


# -- Kubernetes ------------------------------------------------------------------------------------


def test_the_spark_application_runs_the_pipeline_with_our_settings() -> None:
    template = load("kubernetes.yaml")["spec"]["template"]
    script = Path(template["mainApplicationFile"])
    job = accepted([script.stem, *template["arguments"]])
    assert (job.job, job.lakehouse) == ("pipeline", "s3a://example-bucket/groups")
    ours = read_properties(CONF / "spark-defaults.conf")
    assert ours.items() <= template["sparkConf"].items()
    versions = jar_versions()
    packages = [package.rpartition(":") for package in template["deps"]["packages"]]
    known = {name: version for name, _, version in packages if name in versions}
    assert len(known) == 2
    assert known.items() <= versions.items()
    home = "local:///opt/groupledger/"
    assert (ROOT / template["mainApplicationFile"].removeprefix(home)).is_file()


# -- Databricks and EMR ----------------------------------------------------------------------------


def test_the_job_of_databricks_runs_the_pipeline() -> None:
    (task,) = load("databricks-job.json")["tasks"]
    arguments = task["spark_python_task"]["parameters"]
    assert accepted(arguments).spark_conf["spark.jars.packages"].startswith("org.apache.hadoop:")
    script = Path(task["spark_python_task"]["python_file"]).name
    (init,) = load("databricks-cluster.json")["init_scripts"]
    for name in (script, Path(init["workspace"]["destination"]).name):
        assert (SCHEDULES / name).is_file()


def test_the_step_of_emr_runs_the_pipeline() -> None:
    (step,) = load("emr-step.json")["Steps"]
    words = step["HadoopJarStep"]["Args"]
    assert accepted(words[words.index("/opt/groupledger/spark-submit.sh") + 1 :]).job == "pipeline"
    (action,) = load("emr-cluster.json")["BootstrapActions"]
    assert (SCHEDULES / Path(action["ScriptBootstrapAction"]["Path"]).name).is_file()


def test_packages_for_object_stores_fit_the_hadoop_of_spark() -> None:
    (jar,) = (jars.pyspark_home() / "jars").glob("hadoop-client-api-*.jar")
    wanted = jar.stem.removeprefix("hadoop-client-api-")
    for path in SCHEDULES.iterdir():
        if path.is_file():
            found = re.findall(r"hadoop-aws:([\d.]+)", path.read_text("utf-8"))
            assert set(found) <= {wanted}, path.name


def test_its_own_spark_is_all_that_a_job_sees(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "spark-submit.sh"
    script.write_text('#!/bin/sh\nenv >"$0.env"; echo "$@" >>"$0.env"; exit 3\n')
    script.chmod(0o755)
    monkeypatch.setenv("GROUPLEDGER_HOME", str(tmp_path))
    for name in ("SPARK_HOME", "PYSPARK_GATEWAY_PORT", "PYTHONPATH"):
        monkeypatch.setenv(name, "of another Spark")
    assert own_spark.main(["sql", "--query", "SELECT 1"]) == 3
    seen = (tmp_path / "spark-submit.sh.env").read_text()
    assert "of another Spark" not in seen
    assert seen.endswith("sql --query SELECT 1\n")


def test_the_installer_puts_a_checkout_where_jobs_look_for_it(tmp_path: Path) -> None:
    source, home = tmp_path / "source", tmp_path / "opt"
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-C", str(source)]
    source.mkdir()
    (source / "spark-submit.sh").write_text("")
    for line in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *line], check=True)
    # No package is installed, no sudo needed: that is what the machines of the examples have.
    (tmp_path / "bin").mkdir()
    for name in ("sudo", "dnf"):
        (tmp_path / "bin" / name).write_text('#!/bin/sh\n[ "$(basename $0)" = dnf ] || exec "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "GROUPLEDGER_GIT": source.as_uri(),
        "GROUPLEDGER_HOME": str(home),
    }
    subprocess.run([SCHEDULES / "install.sh"], check=True, env=env)
    assert (home / "spark-submit.sh").is_file()
