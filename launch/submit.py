"""Turns `./spark-submit.sh JOB [options]`, or `groupledger`, into the process that runs the job.

Starts no JVM before the options are known to be right, and ends by becoming that process, so that
signals and the exit status are the job's own:

- On a Spark that the user chose, it becomes spark-submit, which runs the job as its child.
- In one process on this machine, it becomes the job, which runs spark-submit as its child
  (pyspark does that, with the arguments in PYSPARK_SUBMIT_ARGS). The other way round, spark-submit
  would merge the job's stderr into stdout, cut it off from the terminal, and leave it running when
  spark-submit is killed.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from launch import command_line, jars, options
from launch.shipping import CONF, FOR_PYTHON, UTC, build_archive, read_properties
from launch.signals import ENDING, HELD_BACK

# Enough for a session and its shuffles on one machine; Spark's default of 1g is not.
LOCAL_DRIVER_MEMORY = "2560m"

# Leaves out the compiler that makes the fastest code, and takes a third of the processor time of a
# run of a minute to do it. With this compiler alone Java sets 48 MB aside for code; a pipeline that
# validates may fill them, and then ends with "Out of space in CodeCache". With both it has 240 MB.
_QUICK_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")

# A thread of Spark's own that memory ran out for is gone, and whoever waits for it waits forever. A
# single run that hangs is somebody's to end; a process that stays has to end by itself.
_TO_STAY = ("-XX:+ExitOnOutOfMemoryError",)


@dataclass(frozen=True)
class Target:
    """The Spark that runs a job."""

    master: str  # where it runs: `local[*]`, `spark://…`, `yarn`, `k8s://…`
    spark_home: Path | None  # the Spark that the user chose, or None for the one that pip installed

    @property
    def is_this_machine(self) -> bool:
        """Whether driver and executors all run here, with our Python at hand."""
        return self.master.startswith("local")

    @property
    def sees_checkout(self) -> bool:
        """Whether the job runs in one process, by our own Spark, and so needs no code shipped."""
        return options.is_one_process(self.master) and self.spark_home is None

    @property
    def home(self) -> Path:
        """Folder whose `bin/spark-submit` is used."""
        return self.spark_home or jars.pyspark_home()


def main(argv: Sequence[str], *, is_installed: bool = False) -> NoReturn:
    """Becomes the job or its spark-submit.

    The script of a checkout has found a Java; the command that pip installed has not.

    Raises:
        SystemExit: 0 after help, 2 after wrong usage, 1 when the job cannot be started.
    """
    chosen = command_line.parse(list(argv))
    if is_installed:
        os.environ["JAVA_HOME"] = java_home()
    target = choose_target(chosen.master or chosen.spark_conf.get("spark.master"), os.environ)
    try:
        command, env = job_process(target, argv, chosen)
        if target.sees_checkout:  # until the job can answer, see `signals`
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            env[HELD_BACK] = "1"
        os.execve(command[0], command, env)  # noqa: S606 - the module says why
    except (jars.JarsError, OSError) as error:
        sys.exit(f"groupledger: cannot start {chosen.job}: {error}")


def java_home() -> str:
    """Returns the home of a Java that Spark runs on, as the script of a checkout finds it.

    Raises:
        SystemExit: there is none; a line has said so.
    """
    find = 'source "$0" && find_java && printf %s "$JAVA_HOME"'
    line = ["bash", "-c", find, str(CONF / "bootstrap.sh")]
    found = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode:
        raise SystemExit(1)
    return found.stdout


def job_process(
    target: Target, argv: Sequence[str], chosen: options.Options
) -> tuple[list[str], dict[str, str]]:
    """Returns the command line and the environment that run a job.

    The job parses its options again; the Spark properties among them win over ours.

    Raises:
        JarsError: JARs are missing and could not be fetched.
        OSError: The cache folder is not writable.
    """
    env = environment(target, os.environ)
    script = [str(jars.CHECKOUT / "jobs" / f"{chosen.job}.py"), *argv[1:]]
    # Another Spark has its own connectors.
    stores = (
        []
        if target.spark_home
        else jars.store_jars([chosen.lakehouse, chosen.records, chosen.output])
    )
    needed = [jars.spark_jars(target.spark_home), *stores]
    # The check says what is missing, and so does without what is not there.
    find = jars.present if chosen.job == "check" and target.sees_checkout else jars.fetch
    found_jars = [path for each in needed for path in find(each)]
    java_options = list(_TO_STAY) if chosen.every else []
    if target.sees_checkout and is_brief(chosen):
        java_options += _QUICK_COMPILER
    archive = None if target.sees_checkout else build_archive(jars.cache_folder())
    arguments = spark_arguments(target, chosen.spark_conf, found_jars, archive, java_options)
    if target.sees_checkout:
        env["PYSPARK_SUBMIT_ARGS"] = shlex.join([*arguments, "pyspark-shell"])
        return [sys.executable, *script], env
    return [str(target.home / "bin" / "spark-submit"), *arguments, *script], env


def is_brief(chosen: options.Options) -> bool:
    """Returns whether a job on this machine is likely to be over before the JVM has warmed up.

    So is a run after others, which has only what is new to look at, and so is a query. The first
    run has all that the topic holds, and to compact large tables takes twice as long.
    """
    if chosen.serve or chosen.every or (chosen.job == "maintain" and not chosen.dry_run):
        return False
    root = options.local_path(chosen.lakehouse)
    has_tables = root is not None and Path(root, "bronze", "records").is_dir()
    return has_tables or chosen.job == "demo"


def choose_target(master: str | None, env: Mapping[str, str]) -> Target:
    """Returns the Spark to use: the user's by SPARK_HOME or --master, else all cores here."""
    chosen_home = env.get("SPARK_HOME")
    if not chosen_home:
        return Target(master or "local[*]", None)
    home = Path(chosen_home).absolute()
    if master is None:
        conf_folder = Path(env.get("SPARK_CONF_DIR") or home / "conf")
        defaults = conf_folder / "spark-defaults.conf"
        site = read_properties(defaults) if defaults.is_file() else {}
        master = site.get("spark.master", "local[*]")
    return Target(master, home)


def cores(master: str) -> int:
    """Returns the number of cores that a master on this machine uses: two for `local[2]`."""
    given = re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", master)
    if given is not None:
        return int(given[1])
    return 1 if master == "local" else os.cpu_count() or 1


def spark_arguments(
    target: Target,
    user_conf: Mapping[str, str],
    found_jars: Sequence[Path],
    archive: Path | None,
    java_options: Sequence[str] = (),
) -> list[str]:
    """Returns spark-submit's own options, the user's properties last so that they win."""
    conf = read_properties(CONF / "spark-defaults.conf")
    if target.is_this_machine:
        conf |= read_properties(CONF / "spark-local.conf")
        conf["spark.driver.memory"] = LOCAL_DRIVER_MEMORY
        conf["spark.sql.shuffle.partitions"] = str(cores(target.master))
    ours = "spark.groupledger."  # see conf/spark-defaults.conf: `spark.groupledger.STEP.X`
    conf = {
        key: value
        for key, value in conf.items()
        if not (key.startswith(ours) and key.removeprefix(ours).partition(".")[2] in user_conf)
    }
    conf |= user_conf
    # Delta computes a table's whole state once more after each commit of a JVM in another zone.
    own_options = [*java_options, UTC]
    for_executors = conf.get("spark.executor.extraJavaOptions", "")
    conf["spark.executor.extraJavaOptions"] = f"{UTC} {for_executors}".strip()
    user_options = conf.get("spark.driver.extraJavaOptions", "")
    if "log4j2.configurationFile" not in user_options:
        own_options.append(f"-Dlog4j2.configurationFile={(CONF / 'log4j2.properties').as_uri()}")
    conf["spark.driver.extraJavaOptions"] = " ".join([*own_options, user_options]).strip()

    if "spark.pyspark.python" in conf:  # of executors; it would be the driver's, too
        conf.setdefault("spark.pyspark.driver.python", sys.executable)
    conf.pop("spark.master", None)
    arguments = ["--master", target.master]
    every_jar = [str(path) for path in found_jars]
    if target.sees_checkout:
        # When a client of the Thrift Server leaves, Hive closes the class loader of --jars.
        key = "spark.driver.extraClassPath"
        conf[key] = os.pathsep.join(filter(None, [*every_jar, conf.get(key)]))
        every_jar = []
    if from_user := conf.pop("spark.jars", ""):
        every_jar.append(from_user)
    if every_jar:
        arguments += ["--jars", ",".join(every_jar)]
    if archive:
        files = [str(archive)]
        if from_user := conf.pop("spark.submit.pyFiles", ""):
            files.append(from_user)
        arguments += ["--py-files", ",".join(files)]
    for key, value in conf.items():
        arguments += ["--conf", f"{key}={value}"]
    return arguments


def environment(target: Target, env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of the job."""
    result = {**env, **FOR_PYTHON}
    result["SPARK_HOME"] = str(target.home)  # spares spark-submit the search for it
    result["GROUPLEDGER_HOME"] = str(jars.CHECKOUT)  # where conf/ is, also when the code is a zip
    result["PYSPARK_DRIVER_PYTHON"] = sys.executable
    result.setdefault("PYTHONWARNINGS", "ignore")  # for developers: the tests make them errors
    result["GROUPLEDGER_TZ"] = env.get("TZ", "")  # what `--timezone local` means
    if target.sees_checkout:
        result["PYTHONPATH"] = str(jars.CHECKOUT)
    else:
        result.pop("PYTHONPATH", None)  # the zip is the code, for the driver too
    if target.is_this_machine:
        result["PYSPARK_PYTHON"] = sys.executable
        result["SPARK_LOCAL_IP"] = "127.0.0.1"  # a host name that does not resolve does no harm
    if target.spark_home is None:
        # Settings of another Spark on this machine are not for ours, which are passed one by one.
        result.pop("SPARK_CONF_DIR", None)
    if not _is_utf8(env):
        # In another locale the JVM would turn every letter beyond ASCII in the options into "?".
        result["LC_ALL"] = "C.UTF-8"
    return result


def _is_utf8(env: Mapping[str, str]) -> bool:
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    return "utf8" in locale.lower().replace("-", "")
