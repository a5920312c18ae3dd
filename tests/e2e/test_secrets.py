"""Secrets are in no process's arguments, log, event log, table or report: a password, a key."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
from kafka import TopicPartition

from launch.options import HASH_KEY
from tests.support import clients
from tests.support.broker import Broker
from tests.support.kills import Job


def arguments_below(root: int) -> set[str]:
    """Return the command lines of a process and all that it started."""
    found = set()
    try:
        me = psutil.Process(root)
        for process in (me, *me.children(recursive=True)):
            found.add(" ".join(process.cmdline()))
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return found  # it has ended in between
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_secrets_show_nowhere(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert broker.credentials is not None
    password = broker.credentials.password
    key = "canary-of-the-hash-key"
    monkeypatch.setenv(HASH_KEY, key)
    tp = TopicPartition("guarded", 0)
    clients.create_topic(broker.bootstrap, tp.topic)
    clients.commit(broker.bootstrap, "guarded", {tp: 1})
    properties = tmp_path / "client.properties"
    lines = [
        f"{key}={value.replace(password, '${env:LEDGER_PASSWORD}')}\n"
        for key, value in broker.sasl_properties().items()
    ]
    properties.write_text("".join(lines))
    events, lakehouse = tmp_path / "events", tmp_path / "lakehouse"
    events.mkdir()
    argv = ("pipeline", "--bootstrap-servers", broker.sasl_bootstrap, "--lakehouse", lakehouse)
    argv += ("--kafka-config", properties, "--hash-clients", "--verbose", "--json")
    argv += ("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events}")
    seen: set[str] = set()
    with Job(*argv, env={"LEDGER_PASSWORD": password}) as job:
        while job.is_running:
            seen |= arguments_below(job.pid)
            time.sleep(0.5)
        assert job.wait() == 0, job.err
    assert any("java" in line for line in seen)
    for secret in (password, key):
        assert not [line for line in seen if secret in line]
        assert secret not in job.out + job.err
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.is_relative_to(events) for path in written)
    assert (lakehouse / "report.html").is_file()
    for secret in (password, key):
        assert not [path for path in written if secret.encode() in path.read_bytes()]
