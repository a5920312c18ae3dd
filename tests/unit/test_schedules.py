"""The schedules of examples/scheduling: what they run are commands that the jobs accept."""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from examples.scheduling.databricks import own_spark
from launch import jars
from launch.command_line import parse
from launch.options import Options
from launch.shipping import CONF, read_properties
from launch.submit import choose_target
from schemas.errors import UsageError
from tests.support.environments import environment

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SCHEDULES = EXAMPLES / "scheduling"
FILES = sorted(path for path in SCHEDULES.rglob("*") if path.is_file() and path.suffix != ".pyc")
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


def load(name: str) -> Any:  # noqa: ANN401 - whatever the file holds
    """Read a file of JSON, or the first document of one of YAML."""
    text = (SCHEDULES / name).read_text("utf-8")
    return json.loads(text) if name.endswith(".json") else next(iter(yaml.safe_load_all(text)))


# -- versions --------------------------------------------------------------------------------------


def declared(name: str) -> str:
    """Return the version of a package that pyproject.toml asks for, or of groupledger itself."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    pattern = '^version = "(.+)"$' if name == "groupledger" else f'^    "{name}==([^"]+)"'
    (version,) = re.findall(pattern, text, re.MULTILINE)
    return str(version)


def jar_versions() -> dict[str, str]:
    """Return the version of each JAR that the launcher fetches for its own Spark."""
    files = set(CONF.glob("jars*.xml")) - set(CONF.glob("jars-spark*.xml"))
    listed = (d for file in files for d in ET.parse(file).getroot().iter("dependency"))  # noqa: S314
    return {f"{d.get('org')}:{d.get('name')}": d.get("rev", "") for d in listed}


JAR = re.compile(r"\b((?:org|io|com|software)\.[\w.]+:[\w.-]+):(\d[\w.-]*\w)")
VERSIONS = {
    # What names a version, and which one it has to be.
    r"\bapache/spark:([\d.]+)": declared("pyspark"),
    r"\bsparkVersion: \"?([\d.]+)": declared("pyspark"),
    r"\bpyspark==([\d.]+)": declared("pyspark"),
    r"\bdelta-spark==([\d.]+)": declared("delta-spark"),
    r"[-_ ]scala_?(\d+\.\d+)": "2.13",
    r"\bscalaVersion: \"?([\d.]+)": "2.13",
    r"_(2\.1[23])[:\"]": "2.13",
    r"/groupledger:([\d.]+)": declared("groupledger"),
}


def other_versions(text: str) -> list[str]:
    """Name what a text pins otherwise than conf/jars.xml and pyproject.toml do."""
    known = jar_versions()
    found = [f"{jar}:{rev}" for jar, rev in JAR.findall(text) if known.get(jar) != rev]
    for pattern, version in VERSIONS.items():
        found += [f"{pattern} {other}" for other in re.findall(pattern, text) if other != version]
    return found


def test_what_is_declared_fits_together() -> None:
    known = jar_versions()
    minor = declared("pyspark").rpartition(".")[0]
    assert known[f"io.delta:delta-spark_{minor}_2.13"] == declared("delta-spark")
    assert known["org.apache.spark:spark-sql-kafka-0-10_2.13"] == declared("pyspark")


@pytest.mark.parametrize(
    "path",
    [*FILES, *ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "Dockerfile"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_examples_and_pages_have_the_versions_that_are_tested(path: Path) -> None:
    assert other_versions(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "io.delta:delta-spark_4.0_2.13:4.4.0",
        "- org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.2",
        "spark.jars.packages=org.apache.hadoop:hadoop-aws:3.4.1",
        "FROM apache/spark:4.0.0-scala2.13-java17-python3-ubuntu",
        "FROM apache/spark:4.1.1-scala2.12-java17-python3-ubuntu",
        "sparkVersion: 4.2.0",
        '"spark_version": "17.3.x-scala2.12"',
        "image: registry.example.com/groupledger:0.0.9",
    ],
)
def test_another_version_is_found(text: str) -> None:
    assert len(other_versions(text)) == 1


@pytest.mark.slow
def test_schemas_allow_what_the_files_have() -> None:
    """The CronJob by Kubernetes' schema, Databricks' by its SDK's types, EMR's by the API's model.

    Those of the operators are a megabyte each, and in no package: docs/operations.md says when the
    files were last held to them.
    """
    python = environment("schedulers") / "bin" / "python"
    checked = [*SCHEDULES.glob("*/*.json"), *SCHEDULES.glob("kubernetes/[cms]*.yaml")]
    assert len(checked) == 8
    line = [python, ROOT / "tests" / "support" / "schedulers.py", *checked]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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
    run = cron(3)
    assert "exit status 3" in run.communicate(timeout=20)[0]
    assert run.returncode == 3


@pytest.mark.parametrize("number", [0, 1])
def test_lines_of_the_crontab_run_the_front_door(tmp_path: Path, number: int) -> None:
    command = crontab()[number][1].replace("/opt/groupledger", str(ROOT))
    command = re.sub(r"(?<=spark-submit.sh )[^>]+", "--version ", command)
    for path in ("/var/lock", "/var/log"):
        command = command.replace(path, str(tmp_path))
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "groupledger.log").read_text().startswith("groupledger ")


# -- systemd ---------------------------------------------------------------------------------------

UNITS = {"groupledger": "pipeline", "groupledger-maintain": "maintain"}


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(SCHEDULES / "systemd" / name)
    return parser


@pytest.mark.parametrize("name", UNITS)
def test_units_run_jobs_as_cron_does(name: str) -> None:
    words = shlex.split(unit(f"{name}.service")["Service"]["ExecStart"])
    job = accepted(words[words.index("/opt/groupledger/spark-submit.sh") + 1 :])
    assert job.job == UNITS[name]
    assert job.strict == (job.job == "pipeline")
    timer = unit(f"{name}.timer")["Timer"]
    assert timer["Persistent"] == "yes"
    assert int(timer["RandomizedDelaySec"]) > 0


@pytest.mark.parametrize("name", [*UNITS, "groupledger-every"])
def test_units_say_that_they_failed_and_may_do_little(name: str, tmp_path: Path) -> None:
    said = unit(f"{name}.service")
    assert said["Unit"]["OnFailure"] == "groupledger-failed@%n.service"
    assert (SCHEDULES / "systemd" / "groupledger-failed@.service").is_file()
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    copy = shutil.copy(SCHEDULES / "systemd" / f"{name}.service", tmp_path)
    line = [analyze, "security", "--no-pager", "--offline=true", "--threshold=40", copy]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout  # without hardening the exposure is 9.2, here 3.8


def test_units_of_systemd_are_valid(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    units = []
    for path in (SCHEDULES / "systemd").iterdir():
        # Not there, on this machine: the program, and the user.
        text = path.read_text("utf-8").replace("/opt/groupledger", str(ROOT))
        units.append(tmp_path / path.name)
        units[-1].write_text(text.replace("User=groupledger\n", ""))
    done = subprocess.run(
        [analyze, "verify", "--man=no", *units], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    when = [unit(f"{name}.timer")["Timer"]["OnCalendar"] for name in UNITS]
    subprocess.run([analyze, "calendar", *when], check=True, stdout=subprocess.DEVNULL)


def test_a_unit_ends_as_its_job_does(tmp_path: Path) -> None:
    script = tmp_path / "spark-submit.sh"
    script.write_text("#!/bin/sh\nexit 3\n")
    script.chmod(0o755)
    line = unit("groupledger.service")["Service"]["ExecStart"]
    for path in ("/opt/groupledger", "/var/lib/groupledger"):
        line = line.replace(path, str(tmp_path))
    assert subprocess.run(shlex.split(line), check=False).returncode == 3


# -- Airflow ---------------------------------------------------------------------------------------


def test_the_dags_run_jobs() -> None:
    text = (SCHEDULES / "airflow_dag.py").read_text("utf-8")
    (schedules,) = (
        node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SCHEDULES"
    )
    config = str(EXAMPLES / "groupledger.toml")
    given = eval(ast.unparse(schedules), {"CONFIG": config})  # noqa: S307 - our own file
    jobs = [accepted([job, *arguments]).job for job, (_, arguments) in given.items()]
    assert jobs == list(given) == ["pipeline", "maintain"]
    compile(text, "airflow_dag.py", "exec")


# -- Kubernetes ------------------------------------------------------------------------------------


HOME = "local:///opt/groupledger/"


def test_the_cron_job_runs_the_pipeline() -> None:
    job = load("kubernetes/cronjob.yaml")["spec"]["jobTemplate"]["spec"]
    (driver,) = job["template"]["spec"]["containers"]
    assert driver["command"] == ["/opt/groupledger/spark-submit.sh"]
    chosen = accepted(driver["args"])
    assert (chosen.job, chosen.strict) == ("pipeline", True)
    assert (chosen.master or "").startswith("k8s://https://")
    known = {each["name"]: each.get("value") for each in driver["env"]}
    assert chosen.spark_conf["spark.kubernetes.container.image"] == "$(IMAGE)"
    assert known["IMAGE"] == driver["image"]
    assert set(re.findall(r"\$\((\w+)\)", " ".join(driver["args"]))) <= known.keys()
    # A try that failed is not made again: the next run is.
    assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")


def test_what_stays_runs_the_pipeline_again_and_again() -> None:
    service = unit("groupledger-every.service")["Service"]
    words = shlex.split(service["ExecStart"])
    (container,) = deployed()["containers"]
    for line in (words, [*container["command"], *container["args"]]):
        job = accepted(line[line.index("/opt/groupledger/spark-submit.sh") + 1 :])
        assert (job.job, job.every_s) == ("pipeline", 900)
    assert service["SuccessExitStatus"] == str(128 + signal.SIGTERM)
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == str(UsageError.status)


def test_what_stays_gets_its_signals_itself() -> None:
    """By the Spark of the image it would be a child of spark-submit, which passes none on."""
    (container,) = deployed()["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert choose_target(accepted(container["args"]).master, env).sees_checkout
    spec = load("kubernetes/continuous.yaml")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize("operator", ["apache", "kubeflow"])
def test_applications_of_operators_run_the_pipeline_with_our_settings(operator: str) -> None:
    if operator == "apache":
        spec = load("kubernetes/spark-operator.yaml")["spec"]
        script, arguments = spec["pyFiles"], spec["driverArgs"]
    else:
        spec = load("kubernetes/kubeflow-operator.yaml")["spec"]["template"]
        script, arguments = spec["mainApplicationFile"], spec["arguments"]
    job = accepted([Path(script).stem, *arguments])
    assert (job.job, job.lakehouse) == ("pipeline", "s3a://example-bucket/groups")
    assert read_properties(CONF / "spark-defaults.conf").items() <= spec["sparkConf"].items()
    assert (ROOT / script.removeprefix(HOME)).is_file()


def pods() -> list[dict[str, Any]]:
    """Return what the CronJobs start: the pipeline's pod and that of maintain."""
    files = ("cronjob.yaml", "maintain.yaml")
    jobs = (load(f"kubernetes/{file}")["spec"]["jobTemplate"]["spec"] for file in files)
    return [job["template"]["spec"] for job in jobs]


def deployed() -> dict[str, Any]:
    """Return the pod that stays."""
    pod: dict[str, Any] = load("kubernetes/continuous.yaml")["spec"]["template"]["spec"]
    return pod


def test_maintain_is_a_cron_job_of_its_own_and_waits_for_the_pipeline() -> None:
    pipeline, maintain = pods()
    (container,) = maintain["containers"]
    assert accepted(container["args"]).job == "maintain"
    assert (
        accepted(container["args"]).lakehouse
        == accepted(pipeline["containers"][0]["args"]).lakehouse
    )
    claims = [[v for v in pod["volumes"] if "persistentVolumeClaim" in v] for pod in pods()]
    assert claims[0] == claims[1] != []
    documents = yaml.safe_load_all((SCHEDULES / "kubernetes/cronjob.yaml").read_text("utf-8"))
    (claim,) = (each for each in documents if each["kind"] == "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_pods_have_no_more_rights_than_they_need() -> None:
    assert deployed()["automountServiceAccountToken"] is False  # it makes no other pods
    for pod in (*pods(), deployed()):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }


def test_a_kustomization_names_another_image_everywhere(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    base = shutil.copytree(SCHEDULES / "kubernetes", tmp_path / "base")
    name, other = "registry.example.com/groupledger", "registry.test/ledger"
    text = (base / "kustomization.yaml").read_text("utf-8")
    (base / "kustomization.yaml").write_text(
        text.replace(f"- name: {name}\n", f"- name: {name}\n    newName: {other}\n")
    )
    line = [kubectl, "kustomize", base]
    made = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert name not in made
    assert made.count(f"{other}:{declared('groupledger')}") == 3
    kinds = sorted(each["kind"] for each in yaml.safe_load_all(made))
    assert kinds == [
        "CronJob",
        "CronJob",
        "PersistentVolumeClaim",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    ]


# -- Databricks and EMR ----------------------------------------------------------------------------


def test_the_job_of_databricks_runs_the_pipeline() -> None:
    (task,) = load("databricks/job.json")["tasks"]
    arguments = task["spark_python_task"]["parameters"]
    assert accepted(arguments).job == "pipeline"
    assert Path(task["spark_python_task"]["python_file"]).name == Path(own_spark.__file__).name
    (init,) = load("databricks/cluster.json")["init_scripts"]
    assert (SCHEDULES / Path(init["workspace"]["destination"]).name).is_file()


def test_the_step_of_emr_runs_the_pipeline() -> None:
    (step,) = load("emr/step.json")["Steps"]
    words = step["HadoopJarStep"]["Args"]
    assert accepted(words[words.index("/opt/groupledger/spark-submit.sh") + 1 :]).job == "pipeline"
    (action,) = load("emr/cluster.json")["BootstrapActions"]
    assert (SCHEDULES / Path(action["ScriptBootstrapAction"]["Path"]).name).is_file()


def test_connectors_of_object_stores_fit_the_hadoop_of_spark() -> None:
    (jar,) = (jars.pyspark_home() / "jars").glob("hadoop-client-api-*.jar")
    hadoop = jar.stem.removeprefix("hadoop-client-api-")
    assert jar_versions()["org.apache.hadoop:hadoop-aws"] == hadoop


@pytest.mark.parametrize("platform", ["databricks", "emr"])
def test_what_was_not_run_says_so(platform: str) -> None:
    assert "**Not run by us.**" in (SCHEDULES / platform / "README.md").read_text("utf-8")


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
