"""Runs groupledger on Airflow 3: the pipeline every 15 minutes, maintain once a day.

Workers need the checkout at GROUPLEDGER_HOME with its environment set up (any job does that, such
as `./spark-submit.sh sql --query "SELECT 1"`), Java 17 or 21, and the file of options that
GROUPLEDGER_CONFIG names. The connection `spark_groupledger` says where Spark runs, for instance
{"conn_type": "spark", "host": "spark://master.example.com:7077"}.
"""

from __future__ import annotations

import os
from datetime import timedelta

import pendulum
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

HOME = os.environ.get("GROUPLEDGER_HOME", "/opt/groupledger")
CONFIG = os.environ.get("GROUPLEDGER_CONFIG", "/etc/groupledger.toml")
# As conf/jars.xml has them; spark-submit fetches what they need, too.
PACKAGES = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
)
SCHEDULES = {
    "pipeline": ("*/15 * * * *", ["--config", CONFIG, "--strict"]),
    "maintain": ("40 3 * * *", ["--config", CONFIG]),
}

for job, (schedule, arguments) in SCHEDULES.items():
    with DAG(
        dag_id=f"groupledger_{job}",
        schedule=schedule,
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        catchup=False,  # a run reads all that is new: there is nothing to catch up on
        max_active_runs=1,  # of two at once, one would do no work and fail
        tags=["kafka", "groupledger"],
    ):
        SparkSubmitOperator(
            task_id=job,
            conn_id="spark_groupledger",
            application=f"{HOME}/jobs/{job}.py",
            application_args=arguments,
            packages=",".join(PACKAGES),
            properties_file=f"{HOME}/conf/spark-defaults.conf",
            driver_memory="4g",
            env_vars={
                "GROUPLEDGER_HOME": HOME,
                "PATH": f"{HOME}/.venv/bin:{os.environ['PATH']}",  # its own Spark comes first
                "PYSPARK_PYTHON": f"{HOME}/.venv/bin/python",
                "PYTHONPATH": HOME,
                "TZ": "UTC",
            },
            retries=0,  # the next run resumes where this one stopped, and reports 3 only once
            execution_timeout=timedelta(hours=2),
        )
