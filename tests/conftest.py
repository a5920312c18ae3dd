"""One Spark session and one broker for the whole run, made when the first test asks for them."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from jobs.runtime import jars, launch
from tests.support.broker import Broker, Credentials
from tests.support.clients import create_offsets_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDINGS = Path(__file__).parents[1] / "examples" / "recordings"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that ./spark-submit.sh would make, with its JARs and properties."""
    target = launch.choose_target("local[2]", {})
    arguments = launch.spark_arguments(target, {}, jars.fetch(jars.spark_jars()), None)
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*arguments, "pyspark-shell"])
    session = SparkSession.builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real broker with a listener for plain clients, one for SASL and one for TLS."""
    folder = tmp_path_factory.mktemp("broker")
    credentials = Credentials("ledger", "canary-5f1c2a")
    with Broker(folder, credentials=credentials, tls=True) as running:
        create_offsets_topic(running.bootstrap)
        yield running


@pytest.fixture
def lakehouse_path(tmp_path: Path) -> str:
    return str(tmp_path / "lakehouse")
