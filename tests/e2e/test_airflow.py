"""The example of Airflow, run by Airflow: on a standalone cluster, with a retry and a missed run.

Airflow is installed into an environment of its own. `airflow dags test` runs each try as a worker
does, in the same process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.conftest import RECORDINGS
from tests.spark.test_golden import GOLDEN, differing
from tests.support import golden
from tests.support.cluster import Standalone, standalone
from tests.support.environments import environment
from tests.support.parts import parts_of

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).parents[2]
DAG = ROOT / "examples" / "scheduling" / "airflow_dag.py"
RECORDING = "2.2.2-default"
OF_CUTS = {"gold.anomalies", "gold.anomaly_checkpoints"}  # in how many runs the log came is told

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="Airflow needs Python 3.11"),
]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standalone]:
    """Two workers that have nothing of the checkout but what jobs send to them."""
    for name in ("PYTHONPATH", "TZ"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with standalone(2, tmp_path / "cluster") as cluster:
        yield cluster


class Airflow:
    """An installation of Airflow, with the example as its only file of DAGs."""

    def __init__(self, home: Path, master: str, config: Path) -> None:
        """Make its database."""
        (home / "dags").mkdir(parents=True)
        shutil.copy(DAG, home / "dags")
        self._program = environment("airflow") / "bin" / "airflow"
        connection = {"conn_type": "spark", "host": master}
        kept = {k: v for k, v in os.environ.items() if "PYTHON" not in k and "SPARK" not in k}
        self._env = kept | {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "5",
            "AIRFLOW_CONN_SPARK_GROUPLEDGER": json.dumps(connection),
            "GROUPLEDGER_HOME": str(ROOT),
            "GROUPLEDGER_CONFIG": str(config),
            "TZ": "Asia/Tokyo",  # as a machine may have it
        }
        subprocess.run([self._program, "db", "migrate"], env=self._env, check=True)

    def run(self, when: str, listen: Callable[[str], None] = lambda _: None) -> tuple[int, str]:
        """Run the pipeline's DAG for a moment; return the exit status, and all that was said."""
        line = [self._program, "dags", "test", "groupledger_pipeline", when]
        said = []
        with subprocess.Popen(
            line, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            for text in process.stdout:
                said.append(text)
                listen(text)
        return process.returncode, "".join(said)


class Seen:
    """The environment of processes of Spark that this test has started."""

    def __init__(self) -> None:
        """Know none."""
        self.environments: dict[str, dict[str, str]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look no longer."""
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        kinds = {"CoarseGrainedExecutorBackend": "executor", "jobs/pipeline.py": "driver"}
        while not self._is_over.is_set():
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):  # it has ended meanwhile
                    line = " ".join(process.cmdline())
                    for text, kind in kinds.items():
                        if text in line:
                            self.environments[kind] = process.environ()
            time.sleep(0.5)


def test_the_dag_does_what_was_missed_and_survives_a_failure(
    cluster: Standalone, tmp_path: Path
) -> None:
    source, lakehouse = tmp_path / "source", tmp_path / "lakehouse"
    config = tmp_path / "groupledger.toml"
    config.write_text(
        f'records = "{source}"\nlakehouse = "{lakehouse}"\n'
        '[conf]\n"spark.sql.shuffle.partitions" = 8\n'
    )
    # The worker's checkout has set itself up, as by any job.
    line = [ROOT / "spark-submit.sh", "check", "--records", RECORDINGS / f"{RECORDING}.parquet"]
    subprocess.run([*line, "--lakehouse", lakehouse], check=True, capture_output=True)
    airflow = Airflow(tmp_path / "airflow", cluster.master, config)
    parts = parts_of(RECORDINGS / f"{RECORDING}.parquet", tmp_path / "parts", 3)

    def appears(text: str) -> None:
        """Let the source be there as soon as the first try has failed."""
        if "Error code is" in text and not source.exists():
            source.mkdir()
            shutil.copy(parts[0], source)

    with Seen() as seen:
        status, said = airflow.run("2026-11-26T00:00:00", appears)
    assert status == 0, said
    assert source.exists(), said
    assert "UP_FOR_RETRY" in said.upper()
    assert seen.environments["driver"]["GROUPLEDGER_HOME"] == str(ROOT)
    assert {seen.environments[kind]["TZ"] for kind in ("driver", "executor")} == {"UTC"}
    assert "PYTHONPATH" not in seen.environments["executor"]

    # No run at 00:15: the next one has twice as much to do.
    for part in parts[1:]:
        shutil.copy(part, source)
    status, said = airflow.run("2026-11-26T00:30:00")
    assert status == 0, said
    now, before = golden.tables(lakehouse), GOLDEN["digests"][RECORDING]["once"]
    differences = [
        difference
        for table in {*before, *now} - OF_CUTS
        for difference in differing(table, before.get(table, "0"), now.get(table, []))
    ]
    assert not differences, "\n".join(["", *differences])

    # Both tries fail, and the run of the DAG with them.
    config.write_text('records = "nowhere"\n')
    status, said = airflow.run("2026-11-26T00:45:00")
    assert status != 0
    assert said.count("Error code is: 1") == 2, said
    assert "groupledger: --records nowhere: no such file or folder" in said
