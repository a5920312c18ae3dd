"""Runs groupledger on Airflow 3: the pipeline every 15 minutes, maintain once a day.

Airflow's workers need the checkout at GROUPLEDGER_HOME with its environment set up (any job does
that, such as `./spark-submit.sh sql --query "SELECT 1"`), Java 17 or 21, and the file of options
that GROUPLEDGER_CONFIG names. Executors get the code and the JARs from the driver; they need the
Python of the checkout's environment at the same path. The connection `spark_groupledger` says where
Spark runs, for instance {"conn_type": "spark", "host": "spark://master.example.com:7077"}.
"""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta

import pendulum
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

HOME = os.environ.get("GROUPLEDGER_HOME", "/opt/groupledger")
CONFIG = os.environ.get("GROUPLEDGER_CONFIG", "/etc/groupledger.toml")
QUIET = f"-Dlog4j2.configurationFile=file:{HOME}/conf/log4j2.properties"
SCHEDULES = {
    "pipeline": ("*/15 * * * *", ["--config", CONFIG, "--strict"]),
    "maintain": ("40 3 * * *", ["--config", CONFIG]),
}
# The environment of the driver and of the executors. Secrets come from a connection of Airflow,
# such as "KAFKA_PASSWORD": "{{ conn.groupledger_kafka.password }}": into DRIVER, since whoever may
# list the processes of a machine sees what is for executors. Spark hands AWS_ACCESS_KEY_ID and its
# like on to executors by itself.
EVERYWHERE = {"TZ": "UTC"}
DRIVER = {
    **EVERYWHERE,
    "GROUPLEDGER_HOME": HOME,
    "PATH": f"{HOME}/.venv/bin:{os.environ['PATH']}",  # its own Spark comes first
    "PYSPARK_PYTHON": f"{HOME}/.venv/bin/python",
}


def from_checkout(what: str) -> str:
    """Ask the checkout of the worker that runs the task for its code or its JARs.

    Args:
        what: an expression of Python: the path of a file, or a list of paths.
    """
    line = f"from launch import jars, shipping\nprint({what})"
    python = f"{HOME}/.venv/bin/python"
    env = {**os.environ, "PYTHONPATH": HOME}
    asked = subprocess.run([python, "-c", line], env=env, check=True, stdout=subprocess.PIPE)
    return asked.stdout.decode().strip()


def code() -> str:
    """Pack the code of the checkout, as it is now."""
    return from_checkout("shipping.build_archive(jars.cache_folder())")


def jars() -> str:
    """Fetch the JARs that conf/jars.xml names, unless they are there."""
    return from_checkout("*jars.fetch(jars.spark_jars()), sep=','")


for job, (schedule, arguments) in SCHEDULES.items():
    with DAG(
        dag_id=f"groupledger_{job}",
        schedule=schedule,
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        catchup=False,  # a run reads all that is new: it does the work of those that were missed
        max_active_runs=1,  # of two at once, one would do no work and fail
        user_defined_macros={"code": code, "jars": jars},
        tags=["kafka", "groupledger"],
    ):
        SparkSubmitOperator(
            task_id=job,
            conn_id="spark_groupledger",
            application=f"{HOME}/jobs/{job}.py",
            application_args=arguments,
            py_files="{{ code() }}",
            jars="{{ jars() }}",
            properties_file=f"{HOME}/conf/spark-defaults.conf",
            conf={
                "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC {QUIET}",
                "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
                **{f"spark.executorEnv.{name}": value for name, value in EVERYWHERE.items()},
            },
            driver_memory="4g",
            env_vars=DRIVER,
            retries=1,  # goes on where the first try stopped, and adds no record twice
            execution_timeout=timedelta(hours=2),
        )
