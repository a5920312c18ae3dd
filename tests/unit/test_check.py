"""The check before the first run, as far as it needs neither Spark nor a broker."""

from __future__ import annotations

import errno
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs import check as check_module
from jobs.check import check
from jobs.runtime.runner import run_alone
from launch import jars
from launch.command_line import parse
from schemas.errors import SourceError
from sources import log_offsets, readiness
from sources.compaction import LAG, RETENTION, SEGMENT, how_often
from sources.inspection import (
    Brokers,
    LogOfTopic,
    Partitions,
    has_address,
    measured,
)
from sources.log_offsets import LogOffsets, principal
from sources.readiness import ClusterCheck, Finding

HOUR = 3_600_000
PREFIXED = "--resource-pattern-type prefixed"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": f'{JAAS} username="ledger" password="canary";',
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that has the JARs, as far as their folder tells."""
    monkeypatch.setenv("GROUPLEDGER_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / jars.spark_jars().folder_name
    folder.mkdir(parents=True)
    (folder / "one.jar").touch()
    return tmp_path / "cache"


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, dict[str, Any], str]:
    """Run the check; give its status, its findings by name, and all that it printed."""
    status = run_alone(check, ["check", *map(str, argv), "--json"])
    printed = capsys.readouterr()
    summary = json.loads(printed.out.splitlines()[-1])
    return status, {c["name"]: c for c in summary["checks"]}, printed.out + printed.err


class TestTheMachine:
    def test_a_lakehouse_that_is_not_there_is_not_made(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        before = sorted(tmp_path.rglob("*"))
        status, found, printed = run(capsys, "--lakehouse", tmp_path / "a" / "b")
        assert status == 0
        assert found["lakehouse"]["state"] == found["space"]["state"] == found["jars"]["state"]
        assert found["lakehouse"]["state"] == "ok"
        assert found["source"]["state"] == "warn"
        assert "A pipeline can run, with 1 warning." in printed
        assert sorted(tmp_path.rglob("*")) == before

    def test_no_jvm_is_started(self, tmp_path: Path, cache: Path) -> None:
        program = "import sys; from launch.submit import main; main(sys.argv[1:])"
        env = os.environ | {"GROUPLEDGER_CACHE": str(cache), "JAVA_HOME": "/nowhere", "PATH": ""}
        argv = ["check", "--lakehouse", str(tmp_path / "l")]
        done = subprocess.run(
            [sys.executable, "-c", program, *argv],
            check=False,
            capture_output=True,
            text=True,
            env=env,
        )
        assert done.returncode == 0, done.stderr
        assert "ok   lakehouse" in done.stdout

    def test_a_file_in_the_way(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        status, found, printed = run(capsys, "--lakehouse", tmp_path / "file" / "l")
        assert status == 1
        assert found["lakehouse"]["state"] == "fail"
        assert "which is a file" in found["lakehouse"]["text"]
        assert "groupledger: check: a pipeline would fail, see lakehouse" in printed

    def test_a_folder_that_is_not_writable(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "l").mkdir()
        asked = []

        def refused(*, dir: Path) -> None:  # noqa: A002 - as tempfile has it
            asked.append(dir)
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        monkeypatch.setattr(tempfile, "TemporaryFile", refused)
        status, found, _ = run(capsys, "--lakehouse", tmp_path / "l" / "m")
        assert (status, found["lakehouse"]["state"]) == (1, "fail")
        assert f"cannot write to {tmp_path / 'l' / 'm'}: Read-only" in found["lakehouse"]["text"]
        assert asked == [tmp_path / "l"]

    def test_little_room(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(check_module, "_LEAST_FREE", 10**18)
        status, found, _ = run(capsys, "--lakehouse", tmp_path / "l")
        assert (status, found["space"]["state"]) == (0, "warn")

    def test_jars_that_are_not_there_yet(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, cache: Path
    ) -> None:
        (cache / jars.spark_jars().folder_name / "one.jar").unlink()
        (tmp_path / "l" / "bronze" / "records").mkdir(parents=True)
        before = sorted(tmp_path.rglob("*"))
        status, found, _ = run(capsys, "--lakehouse", tmp_path / "l")
        assert status == 0
        assert found["jars"]["state"] == "warn"
        assert "the first job fetches them" in found["jars"]["text"]
        assert found["tables"]["text"] == "not looked at: Spark lacks its JARs"
        assert sorted(tmp_path.rglob("*")) == before


class Answers:
    """An inspector whose cluster says what a test wants."""

    def __init__(self, **given: object) -> None:
        self._given = {
            "brokers": Brokers("id", {"b1:9092": "4.3", "b2:9092": "3.9"}, [], []),
            "topic": Partitions({0: 1, 1: 2}),
            "log": LogOfTopic(
                [LogOffsets("t", 0, 0, 10), LogOffsets("t", 1, 5, 1005)], 0, None, {0: 1, 1: 240}
            ),
            "newest": b"",
            "size": 75_000,
            "may_describe": True,
            "visible_topics": 3,
            "settings": {"cleanup.policy": "compact", "segment.bytes": "104857600"},
        } | given

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any answer
        def answer(*_: object) -> object:
            given = self._given[name]
            if isinstance(given, SourceError):
                raise given
            return given

        return answer


def no_spark(*_: object) -> Iterator[Finding]:
    """No question of these needs it."""
    raise AssertionError


def asked(
    properties: dict[str, str] | None = None, *argv: str, **given: object
) -> dict[str, Finding]:
    chosen = parse(["check", "--bootstrap-servers", "b1:9092, b2:9092", *argv])
    about = ClusterCheck(chosen.bootstrap_servers or "", chosen.topic, no_spark)
    about._user = principal(properties or {})
    about._is_plain = not properties
    answers: Any = Answers(**given)
    return {finding.name: finding for finding in about._asked(answers)}


class TestTheCluster:
    def test_all_is_well(self) -> None:
        found = asked()
        assert {finding.state for finding in found.values()} == {"ok"}
        assert found["brokers"].text == (
            "2 reachable, Kafka 3.9 and 4.3 by their API versions, cluster id id"
        )
        redpanda = asked(brokers=Brokers("redpanda.560e2403", {"b1:9092": "3.3"}, [], []))
        assert redpanda["brokers"].text == (
            "1 reachable, Redpanda, which answers as Kafka 3.3 by their API versions, cluster id"
            " redpanda.560e2403"
        )
        assert found["log"].text == ("about 500 records in 75.0 kB; 241 came in the last 24 hours")
        assert list(found)[-1] == "schedule"

    @pytest.mark.parametrize(
        ("given", "name", "state", "end"),
        [
            (
                {"topic": Partitions({}, is_hidden=True)},
                "topic",
                "fail",
                "--operation Read --topic __consumer_offsets",
            ),
            (
                {"newest": None},
                "read",
                "fail",
                "--operation Read --topic __consumer_offsets",
            ),
            (
                {"may_describe": False},
                "group",
                "fail",
                f"--operation Describe --group spark-kafka-relation {PREFIXED}",
            ),
            ({"visible_topics": 0}, "lag", "warn", "--operation Describe --topic '*'"),
            (
                {"settings": None},
                "settings",
                "warn",
                "--operation DescribeConfigs --topic __consumer_offsets",
            ),
            ({"size": None}, "size", "warn", "--operation Describe --cluster"),
        ],
        ids=["see", "read", "group", "lag", "settings", "size"],
    )
    def test_what_the_user_may_not_do_comes_with_the_command(
        self, given: dict[str, object], name: str, state: str, end: str
    ) -> None:
        finding = asked(SASL, **given)[name]
        assert finding.state == state
        assert finding.advice == (
            "kafka-acls.sh --bootstrap-server b1:9092,b2:9092 --command-config admin.properties"
            f" --add --allow-principal User:ledger {end}"
        )

    def test_without_a_login_the_command_has_none(self) -> None:
        advice = asked(visible_topics=0)["lag"].advice
        assert "--command-config" not in advice
        assert "--allow-principal User:ANONYMOUS" in advice

    def test_no_topic(self) -> None:
        found = asked(topic=Partitions({}))
        assert found["topic"].state == "fail"
        assert "there is no such topic" in found["topic"].text
        assert found["group"].state == "warn"  # to ask would make the topic
        assert not {"log", "read", "settings", "schedule"} & set(found)

    def test_partitions_without_a_leader(self) -> None:
        found = asked(topic=Partitions({0: -1, 1: 2}))
        assert found["topic"].state == "fail"
        assert found["topic"].text == "partitions without a leader: 0 of 2"
        assert found["read"].state == "ok"

    def test_brokers_that_do_not_answer(self) -> None:
        found = asked(brokers=Brokers("id", {"b1:9092": "4.3"}, ["inner:9092"], ["b3:9092"]))
        assert found["brokers"].state == "warn"  # the last of the two lines
        chosen = parse(["check", "--bootstrap-servers", "b1:9092"])
        about: Any = ClusterCheck(chosen.bootstrap_servers or "", chosen.topic, no_spark)
        answers = Answers(brokers=Brokers("id", {"b1:9092": "4.3"}, ["inner:9092"], []))
        (line,) = about._brokers(answers)
        assert line.state == "fail"
        assert line.text.startswith("inner:9092 of 2 do not answer")

    @pytest.mark.parametrize(
        ("question", "name", "state"),
        [
            ("brokers", "brokers", "fail"),
            ("topic", "topic", "fail"),
            ("log", "log", "fail"),
            ("newest", "log", "fail"),
            ("size", "size", "warn"),
            ("may_describe", "group", "fail"),
            ("visible_topics", "lag", "warn"),
            ("settings", "settings", "warn"),
        ],
    )
    def test_a_question_without_an_answer_stops_no_other(
        self, question: str, name: str, state: str
    ) -> None:
        given: dict[str, object] = {question: SourceError("b1:9092: no broker answered")}
        found = asked(**given)
        assert (found[name].state, found[name].text) == (state, "b1:9092: no broker answered")
        assert {"brokers", "topic", "group", "lag"} <= set(found)
        assert ("read" in found) is (question not in {"topic", "log", "newest"})

    def test_segments_of_a_topic_that_is_not_compacted_limit_nothing(self) -> None:
        settings = {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * HOUR)}
        assert how_often(settings, 2.4e9).minutes == 60
        assert how_often({**settings, "cleanup.policy": "compact,delete"}, 2.4e9).minutes == 5

    def test_a_topic_that_is_not_compacted(self) -> None:
        settings = {"cleanup.policy": "delete", "retention.ms": str(HOUR)}
        found = asked(settings=settings)
        assert found["settings"].state == "warn"
        assert found["settings"].advice.endswith("--add-config cleanup.policy=compact")
        assert "retention deletes records that are 60 min old" in found["schedule"].text
        other = asked({}, "--topic", "mirror", settings=settings)
        assert other["settings"].state == "ok"

    def test_a_busy_topic_needs_the_cleaner_to_wait(self) -> None:
        busy = LogOfTopic([LogOffsets("t", 1, 0, 10**9)], 0, None, {1: 10**9})
        found = asked(log=busy)
        assert found["schedule"].state == "warn"
        assert "every 5 minutes is not often enough" in found["schedule"].text
        assert found["schedule"].advice.endswith("--add-config min.compaction.lag.ms=14400000")

    def test_no_host_has_an_address(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(readiness, "has_address", lambda _: False)
        argv = ("--bootstrap-servers", "no-such-host.invalid:9092", "--lakehouse", tmp_path / "l")
        status, found, _ = run(capsys, *argv)
        assert (status, found["brokers"]["state"]) == (1, "fail")
        assert "none of the hosts in --bootstrap-servers has an address" in found["brokers"]["text"]
        assert found["lakehouse"]["state"] == "ok"

    def test_no_broker(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(log_offsets._TIMEOUTS, "bootstrap_timeout_ms", 500)
        config = tmp_path / "client.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in SASL.items()))
        argv = ("--bootstrap-servers", "127.0.0.1:9", "--kafka-config", config)
        status, found, printed = run(capsys, *argv, "--lakehouse", tmp_path / "l")
        assert (status, found["brokers"]["state"]) == (1, "fail")
        assert "no broker answered" in found["brokers"]["text"]
        assert found["lakehouse"]["state"] == "ok"
        assert "canary" not in printed

    @pytest.mark.parametrize(
        "lines",
        ["security.protocol=canary\n", "a=${env:LEDGER_NOT_SET}canary\n"],
        ids=["protocol", "variable"],
    )
    def test_a_wrong_property(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, lines: str
    ) -> None:
        config = tmp_path / "client.properties"
        config.write_text(lines)
        argv = ("--bootstrap-servers", "127.0.0.1:9", "--kafka-config", config)
        status, found, printed = run(capsys, *argv, "--lakehouse", tmp_path / "l")
        assert (status, found["config"]["state"]) == (1, "fail")
        assert "canary" not in printed


@pytest.mark.parametrize(
    ("properties", "user"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL"}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "k.pem"}, None),
        (SASL, "User:ledger"),
        ({"security.protocol": "SASL_SSL"}, None),
    ],
    ids=["plain", "tls", "certificate", "sasl", "kerberos"],
)
def test_whom_brokers_take_the_client_for(properties: dict[str, str], user: str | None) -> None:
    assert principal(properties) == user


def test_hosts_with_and_without_an_address() -> None:
    assert has_address("no-such-host.invalid:1,127.0.0.1:2")
    assert not has_address("no-such-host.invalid:1")


class TestHowOften:
    """A segment has 100 MB."""

    @pytest.mark.parametrize(
        ("bytes_a_day", "minutes"),
        [(0, 60), (200e6, 60), (500e6, 30), (2e9, 5)],
        ids=["quiet", "half a day", "five hours", "75 minutes"],
    )
    def test_ten_times_while_a_segment_fills(self, bytes_a_day: float, minutes: int) -> None:
        often = how_often({}, bytes_a_day)
        assert (often.minutes, often.is_enough, often.limit) == (minutes, True, SEGMENT)

    def test_a_quiet_segment_is_closed_by_its_age(self) -> None:
        assert how_often({}, 0).limit_ms == 168 * HOUR
        assert how_often({"segment.ms": str(HOUR)}, 0).minutes == 5
        forced = how_often({"max.compaction.lag.ms": str(2 * HOUR)}, 0)
        assert (forced.minutes, forced.limit_ms) == (10, 2 * HOUR)

    def test_too_busy(self) -> None:
        often = how_often({}, 10e9)
        assert (often.minutes, often.is_enough) == (5, False)

    def test_the_cleaner_waits(self) -> None:
        often = how_often({"min.compaction.lag.ms": str(4 * HOUR)}, 10e9)
        assert (often.minutes, often.is_enough, often.limit) == (60, True, LAG)
        assert how_often({"min.compaction.lag.ms": str(HOUR)}, 10e9).minutes == 15
        assert how_often({"min.compaction.lag.ms": "1000"}, 0).limit == SEGMENT

    def test_retention(self) -> None:
        settings = {"cleanup.policy": "compact,delete", "retention.ms": str(5 * HOUR)}
        often = how_often(settings, 0)
        assert (often.minutes, often.limit, often.limit_ms) == (30, RETENTION, 5 * HOUR)
        assert how_often(settings | {"retention.ms": "-1"}, 0).limit == SEGMENT
        assert how_often(settings | {"cleanup.policy": "compact"}, 0).limit == SEGMENT


class TestBytesOfARecord:
    def batch(self, records: int, length: int) -> bytes:
        """Return a batch of Kafka 0.11 and later with so many bytes behind its length."""
        header = struct.pack(">qiibIhiqqqhii", 7, length, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, records)
        return header.ljust(12 + length, b"\0")

    def old(self, length: int) -> bytes:
        return struct.pack(">qiIb", 7, length, 0, 1).ljust(12 + length, b"\0")

    def test_of_batches(self) -> None:
        assert measured(self.batch(1, 88) + self.batch(3, 288)) == 100

    def test_what_is_cut_off_does_not_count(self) -> None:
        assert measured(self.batch(1, 88) + self.batch(9, 88)[:70]) == 100

    def test_of_older_records(self) -> None:
        assert measured(self.old(88) + self.old(48)) == 80

    def test_of_none(self) -> None:
        assert measured(b"") is None
        assert measured(self.batch(1, 88)[:20]) is None
