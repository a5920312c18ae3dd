"""The job explain on the demo's recording, and what it says where there is nothing."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from jobs.explain import explain as explain_job
from reporting.screen import show_story
from reporting.story import Story
from tests.support.jobs import Outcome, asked, run, run_of
from tests.support.report import column_of, data_of
from tests.support.topic import GAP_GROUPS, GAP_SINCE, HOUR, MINUTE

SINCE, UNTIL = "2026-11-21 07:01:08", "2026-11-21 07:01:40"


@cache
def explain(root: str, *options: str) -> Outcome:
    return run("explain", "--lakehouse", root, "--cluster", "one", *options)


def moment(millis: int) -> str:
    return f"{dt.datetime.fromtimestamp(millis / 1_000, dt.timezone.utc):%Y-%m-%d %H:%M:%S}"


class Explained(NamedTuple):
    """A window, with its page."""

    outcome: Outcome
    path: Path


@pytest.fixture(scope="module")
def explained(storm: str, tmp_path_factory: pytest.TempPathFactory) -> Explained:
    path = tmp_path_factory.mktemp("explained") / "crash-loop.html"
    options = ("--group", "crash-loop", "--since", SINCE, "--until", UNTIL, "--html", str(path))
    return Explained(explain(storm, *options), path)


def test_a_window_is_explained_in_the_order_of_time(storm: str, explained: Explained) -> None:
    outcome = explained.outcome
    assert outcome.status == 0, outcome.err
    found = outcome.summary
    kinds = [event["kind"] for event in found["events"]]
    assert kinds == ["critical", "rebalance", "rebalance", "rebalance"]
    assert "crash-2 joined; crash-1 left or failed" in found["events"][1]["text"]
    # What each says is in the tables, under the record that it names.
    text = "SELECT record_partition, record_offset, generation FROM gold.group_generations"
    rows = asked(storm, f"{text} WHERE generation > 0")
    for event in found["events"][1:]:
        at = (event["record_partition"], event["record_offset"])
        (generation,) = (
            row["generation"]
            for row in rows
            if (row["record_partition"], row["record_offset"]) == at
        )
        assert f"Rebalance to generation {generation}:" in event["text"]
    owners = {(o["topic_partition"], o["client_id"]) for o in found["owners"]}
    assert {(0, "crash-1"), (0, "crash-2"), (0, "crash-3"), (3, "crash-x")} <= owners


def test_the_page_of_a_window(explained: Explained) -> None:
    path = explained.path
    assert explained.outcome.summary["report"] == str(path)
    data = data_of(path)
    assert [group["group_id"] for group in data["shown"]] == ["crash-loop"]
    (group,) = data["shown"]
    assert 0 < group["panels"]["generations"]["count"] < 10
    since, until = data["chosen"]["since"], data["chosen"]["until"]
    assert until - since == 32_000
    states = group["panels"]["states"]["rows"]
    assert all(at < until for at in column_of(states, "started_at"))
    assert all(at is None or at >= since for at in column_of(states, "ended_at"))


def test_what_would_have_prevented_them_is_counted(storm: str, tmp_path: Path) -> None:
    path = tmp_path / "orders-storm.html"
    found = explain(storm, "--group", "orders-storm", "--html", str(path)).summary
    static, cooperative = found["remedies"]
    assert (static["kind"], cooperative["kind"]) == ("static_membership", "cooperative")
    assert static["setting"] == "group.instance.id and session.timeout.ms=10000 as it is"
    rebalances = [event for event in found["events"] if event["kind"] == "rebalance"]
    assert static["of"] == len(rebalances) == 133
    # Each rests on the records of so many of them.
    at = {(e["record_partition"], e["record_offset"]) for e in rebalances}
    assert len({tuple(record) for record in static["records"]} & at) == static["rebalances"] == 113
    # The report says the same, from what it reads.
    (group,) = data_of(path)["shown"]
    said = [text.partition(" (records ")[0] for text in group["remedies"]]
    assert said == [remedy["text"] for remedy in (static, cooperative)]
    assert explain(storm, "--group", "healthy-ctl").summary["remedies"] == []


def test_one_partition_alone(storm: str) -> None:
    options = ("--group", "crash-loop", "--since", SINCE, "--until", UNTIL)
    found = explain(storm, *options, "--partition", "orders:2").summary
    assert {(o["topic"], o["topic_partition"]) for o in found["owners"]} == {("orders", 2)}
    assert {(o["topic"], o["topic_partition"]) for o in found["offsets"]} == {("orders", 2)}
    nothing = explain(storm, *options, "--partition", "no-such-topic:2").summary
    assert nothing["owners"] == nothing["offsets"] == []


def test_times_are_of_the_zone_that_is_named(storm: str, explained: Explained) -> None:
    options = ("--group", "crash-loop", "--timezone", "Asia/Tokyo")
    there = explain(
        storm, *options, "--since", "2026-11-21 16:01:08", "--until", "2026-11-21 16:01:40"
    )
    assert there.summary["events"] == explained.outcome.summary["events"]


def test_without_a_window_it_is_the_last_hour_of_the_log(storm: str) -> None:
    found = explain(storm, "--group", "healthy-ctl").summary
    assert found["until"] - found["since"] == 3_600_000
    newest = dt.datetime.fromtimestamp(found["until"] / 1_000, dt.timezone.utc)
    assert f"{newest:%Y-%m-%d %H:%M}" == "2026-11-21 07:03"
    assert [event["kind"] for event in found["events"]].count("rebalance") == 2


def test_an_unknown_group_is_answered_by_the_nearest(storm: str) -> None:
    outcome = explain(storm, "--group", "crash-lop")
    assert outcome.status == 2
    assert "cluster one has no such group; near are crash-loop" in outcome.complaint


def test_a_window_without_data_is_answered_by_what_there_is(storm: str) -> None:
    options = ("--group", "crash-loop", "--since", "2020-01-01", "--until", "2020-01-02")
    outcome = explain(storm, *options)
    assert outcome.status == 2
    assert "the lakehouse has 2026-11-21 07:00:27 to" in outcome.complaint


QUESTIONS = {
    "no group": ("--group", "crash-lop"),
    "no data": ("--group", "crash-loop", "--since", "2020-01-01", "--until", "2020-01-02"),
    "a window": ("--group", "crash-loop", "--since", SINCE, "--until", UNTIL),
    "a partition": ("--group", "orders-storm", "--partition", "orders:0"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_needs_no_java(storm: str, question: str) -> None:
    at = ("--lakehouse", storm, "--cluster", "one", *QUESTIONS[question])
    bare = os.environ | {"PATH": "", "JAVA_HOME": "/nowhere"}
    command = [sys.executable, "-m", "jobs.explain", *at, "--json"]
    done = subprocess.run(command, env=bare, capture_output=True, text=True, check=False)
    by_spark = run("explain by Spark", *at)
    assert (done.returncode, told(done.stdout)) == (by_spark.status, told(by_spark.out))
    if by_spark.status:
        assert done.stderr == by_spark.complaint + "\n"


def test_what_a_group_did_is_told_if_its_page_cannot_be_made(
    storm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, shown = tmp_path / "lakehouse", list[str]()
    monkeypatch.setattr("jobs.explain._show", lambda _, story: shown.append(story.group))
    shutil.copytree(storm, root, ignore=shutil.ignore_patterns("group_health"))
    outcome = explain(str(root), "--group", "crash-loop", "--html", str(tmp_path / "x.html"))
    assert (outcome.status, "no group has such an id" in outcome.complaint) == (2, True)
    assert shown == ["crash-loop"]


def told(out: str) -> dict[str, Any]:
    """Read what a job printed, but how long it took."""
    found = json.loads(out or "{}")
    found.pop("seconds", None)
    return found


def test_of_files_nothing_is_known_behind_their_newest_record(storm: str) -> None:
    options = ("--group", "crash-loop", "--since")
    later = explain(storm, *options, "2026-11-21 07:05", "--until", "2026-11-21 09:00")
    assert later.status == 2
    assert "there is no data from 2026-11-21 07:05:00" in later.complaint
    partly = explain(storm, *options, "2026-11-21 07:01", "--until", "2026-11-21 09:00")
    assert partly.status == 0
    assert "nothing is known after 2026-11-21 07:03" in partly.err
    assert partly.summary["until"] < 1_795_252_000_000
    early = explain(storm, *options, "2020-01-01", "--until", "2026-11-21 07:02")
    assert "nothing is known before 2026-11-21 07:00:27" in early.err


def test_a_window_that_ends_before_it_begins_is_refused(storm: str) -> None:
    outcome = explain(storm, "--group", "crash-loop", "--since", UNTIL, "--until", SINCE)
    assert outcome.status == 2
    assert "is not before --until" in outcome.complaint


@pytest.mark.parametrize("group", GAP_GROUPS)
def test_from_a_gap_on_members_and_owners_are_not_known(
    spark: SparkSession, gap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    stories: list[Story] = []

    def show(out: Console, story: Story, where: dt.tzinfo, partition: str | None) -> None:
        stories.append(story)
        show_story(out, story, where, partition)

    monkeypatch.setattr("jobs.explain.show_story", show)

    def told(since: int, until: int, *more: str) -> str:
        window = ("--group", group, "--since", moment(since), "--until", moment(until))
        given = run_of(spark, gap, "explain", *window, *more)
        given.out = Console(record=True, width=160, file=io.StringIO())
        explain_job(given)
        return given.out.export_text()

    since, back, end = GAP_SINCE, GAP_SINCE + HOUR, GAP_SINCE + 2 * HOUR
    path = tmp_path / "explained.html"
    shown = told(since - MINUTE, end, "--html", str(path))
    found = stories[0].figures()
    (event,) = (event for event in found["events"] if event["kind"] == "unknown")
    assert event["at"] == since
    assert event["text"].startswith("Not known from here on, for up to ")
    assert event["text"].endswith(
        "(records are missing): what state the group was in, whether 1 member (client-a) stayed,"
        " and who owned 2 partitions."
    )
    assert "not known from 2023-11-14 22:13:20 (records are missing)" in shown
    doubted = {o["client_id"] for o in found["owners"] if o["known_until"] is not None}
    assert doubted == {"client-a", "client-b"}
    (page,) = data_of(path)["shown"]
    for panel in ("states", "members", "owners"):
        assert since in column_of(page["panels"][panel]["rows"], "known_until")
    # Amid the gap the last owner is not named, and behind it all are known.
    shown = told(since + 10 * MINUTE, back - 10 * MINUTE)
    assert shown.count("Not known from here on") == 1
    assert re.search(r":0\s+not known\s+22:23:20\s+not known from 22:13:20", shown)
    assert "client-a at" not in shown
    shown = told(back + MINUTE, end)
    assert re.search(r":0\s+client-b at", shown) or re.search(r":0\s+client-c at", shown)
    assert "who owned" not in shown
    assert "not known from" not in shown
