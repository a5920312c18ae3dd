"""Moments as people write them."""

from __future__ import annotations

import datetime as dt

import pytest

from launch.times import moment, zone

UTC = dt.timezone.utc
NOW = dt.datetime(2026, 11, 21, 3, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-11-21T03:00:00+00:00"),
        ("02:10", "2026-11-21T02:10:00+00:00"),
        ("2:10", "2026-11-21T02:10:00+00:00"),
        ("02:10:30", "2026-11-21T02:10:30+00:00"),
        ("03:00", "2026-11-21T03:00:00+00:00"),
        ("23:50", "2026-11-20T23:50:00+00:00"),
        ("2h ago", "2026-11-21T01:00:00+00:00"),
        ("90 m ago", "2026-11-21T01:30:00+00:00"),
        ("3d  ago", "2026-11-18T03:00:00+00:00"),
        ("2026-11-20", "2026-11-20T00:00:00+00:00"),
        ("2026-11-20 02:10", "2026-11-20T02:10:00+00:00"),
        ("2026-11-20T02:10:05Z", "2026-11-20T02:10:05+00:00"),
        ("2026-11-20T02:10:05+02:00", "2026-11-20T00:10:05+00:00"),
    ],
)
def test_a_moment_is_what_its_writer_means(text: str, expected: str) -> None:
    assert moment(text, NOW, UTC) == dt.datetime.fromisoformat(expected)


def test_a_time_without_a_zone_is_of_the_one_who_asks() -> None:
    berlin = zone("Europe/Berlin")
    assert moment("03:30", NOW, berlin) == dt.datetime(2026, 11, 21, 2, 30, tzinfo=UTC)
    # There it is 04:00, so that 04:30 was yesterday.
    assert moment("04:30", NOW, berlin) == dt.datetime(2026, 11, 20, 3, 30, tzinfo=UTC)


@pytest.mark.parametrize("text", ["tuesday", "", "25:00", "2 ago", "2026-13-01", "12", "h ago"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no time: write 02:10"):
        moment(text, NOW, UTC)


@pytest.mark.parametrize("name", ["Mars/Phobos", "", "../../etc/passwd", "/etc/localtime"])
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no time zone"):
        zone(name)
