"""Lag of one partition: its age, and Burrow's rules, one by one."""

from __future__ import annotations

import random
import ssl
from pathlib import Path

import pytest

from offsets.burrow import Window, evaluate
from offsets.ends import EndHistory
from offsets.measure import NO_OFFSET, Lag, known_until, measure
from schemas.errors import SourceError
from sources.log_offsets import UnsupportedError, client_options

SECOND = 1_000_000
MINUTES = [60 * SECOND * i for i in range(10)]
NOW = MINUTES[-1] + 30 * SECOND
OFFSETS = list(range(0, 100, 10))


def status(
    offsets: list[int],
    lags: list[int | None],
    *,
    at: list[int] | None = None,
    lag: int = 50,
    now: int = NOW,
    lately: bool = False,
) -> str:
    at = MINUTES[: len(offsets)] if at is None else at
    return evaluate(Window(offsets, at, lags), lag=lag, now=now, was_at_end_lately=lately)[0]


class TestBurrow:
    def test_no_lag_now_is_ok_whatever_the_window(self) -> None:
        assert status([9, 1], [5, 9], lag=0, now=10**12) == "OK"

    def test_lag_that_was_zero_within_the_window_is_ok(self) -> None:
        assert status(OFFSETS, [5, 6, 7, 0, 5, 6, 7, 8, 9, 10]) == "OK"

    def test_the_same_offset_over_the_window_is_stall(self) -> None:
        assert status([5] * 10, list(range(10, 20))) == "STALL"
        assert status([5] * 10, [10] * 10) == "STALL"

    def test_the_same_offset_at_the_end_of_the_log_is_ok(self) -> None:
        assert status([5] * 10, [0] * 9 + [3]) == "OK"

    @pytest.mark.parametrize("lags", [[10] * 10, list(range(10, 20))], ids=["fixed", "growing"])
    def test_progress_with_lag_that_never_gets_smaller_is_warn(
        self, lags: list[int | None]
    ) -> None:
        assert status(OFFSETS, lags) == "WARN"

    def test_progress_with_lag_that_got_smaller_once_is_ok(self) -> None:
        assert status(OFFSETS, [10, 11, 12, 13, 14, 13, 14, 15, 16, 17]) == "OK"

    def test_longer_without_a_commit_than_the_window_took_is_stop(self) -> None:
        at_the_limit = MINUTES[-1] + (MINUTES[-1] - MINUTES[0])
        assert status(OFFSETS, [10] * 10, now=at_the_limit) == "WARN"
        assert status(OFFSETS, [10] * 10, now=at_the_limit + 1) == "STOP"

    def test_half_a_second_between_two_clocks_stops_nobody(self) -> None:
        """The group commits every 100 ms."""
        at = [SECOND * i // 10 for i in range(10)]
        assert status(OFFSETS, [10] * 10, at=at, now=at[-1] + 30 * SECOND) == "WARN"
        assert status(OFFSETS, [10] * 10, at=at, now=at[-1] + 31 * SECOND) == "STOP"

    def test_stop_comes_before_lag_that_was_zero(self) -> None:
        assert status(OFFSETS, [0] * 10, now=10**12) == "STOP"

    def test_who_was_at_the_end_lately_has_not_stopped(self) -> None:
        assert status(OFFSETS, [0] * 10, now=10**12, lately=True) == "OK"

    def test_one_commit_long_ago_is_stop(self) -> None:
        assert status([5], [None]) == "STOP"

    def test_going_back_is_rewind_until_it_is_made_good(self) -> None:
        assert status([50, 60, 5, 10], [9, 8, 70, 65], now=MINUTES[4]) == "REWIND"
        assert status([50, 60, 5, 60], [9, 8, 70, 9], now=MINUTES[4]) == "OK"

    def test_rewind_comes_before_lag_that_was_zero(self) -> None:
        assert status([50, 60, 5, 10], [0, 0, 70, 65], now=MINUTES[4]) == "REWIND"

    def test_unknown_lag_makes_no_warning(self) -> None:
        assert status(OFFSETS, [None] * 9 + [10]) == "OK"
        assert status(OFFSETS, [None] * 8 + [10, 12]) == "WARN"

    def test_no_commit_with_a_time_makes_no_judgement(self) -> None:
        assert status([], []) == "OK"


class TestEnds:
    ends = EndHistory([0, 100, 200], [10, 10, 30])

    def test_the_end_between_samples(self) -> None:
        assert [self.ends.end_at(t) for t in (-1, 0, 50, 150, 200, 999)] == [
            *(None, 10, 10, 20, 30, 30)
        ]

    def test_when_the_end_passed_an_offset(self) -> None:
        assert self.ends.passed(9) == (None, 0, None)
        assert self.ends.passed(10) == (100, 200, 100)
        assert self.ends.passed(25) == (100, 200, 175)

    def test_another_log_starts_anew(self) -> None:
        assert self.ends.with_sample(300, 29) == ([300], [29])
        assert EndHistory((), ()).with_sample(5, 0) == ([5], [0])

    def test_a_clock_that_stands_still_adds_nothing(self) -> None:
        assert self.ends.with_sample(200, 40) is self.ends

    def test_few_samples_tell_of_a_year(self) -> None:
        """Sampled every 5 minutes for a year, an age is known to a quarter."""
        chance = random.Random(3)  # noqa: S311 - not for secrets
        every, year = 300, 365 * 24 * 3600
        ends = EndHistory((), ())
        for at in range(0, year, every):
            ends = ends.with_sample(at, at)
        assert len(ends.at) == 64
        now = ends.at[-1]
        assert ends.at[0] == 0
        for _ in range(1_000):
            offset = now - int(every + (now - 2 * every) ** chance.random())
            passed = ends.passed(offset)
            assert passed.earliest is not None
            assert passed.earliest <= offset <= passed.latest
            assert passed.latest - passed.earliest <= max(every, (now - passed.earliest) / 4)


class TestMeasure:
    ends = EndHistory([0, 3600 * SECOND, 7200 * SECOND], [100, 1100, 2100])

    def measure(
        self, committed: int, start: int = 0, ends: EndHistory = ends
    ) -> tuple[object, ...]:
        at = [7000 * SECOND, 7190 * SECOND]
        commits = [committed - 1, committed]
        measured = measure(
            committed, start, ends, commits=commits, commits_at=at, known_until=7200 * SECOND
        )
        assert measured.lag == measured.lag_min == measured.lag_max
        return (measured.lag, measured.phantom_lag, *self.seconds(measured))

    def seconds(self, measured: Lag) -> tuple[float | None, ...]:
        return measured.lag_seconds, measured.lag_seconds_min, measured.lag_seconds_max

    def as_of(self, until: int, committed: int, ends: EndHistory = ends) -> Lag:
        return measure(committed, 0, ends, commits=[], commits_at=[], known_until=until * SECOND)

    def test_at_the_end(self) -> None:
        assert self.measure(2100) == (0, 0, 0.0, 0.0, 0.0)

    def test_between_samples(self) -> None:
        assert self.measure(1600) == (500, 0, 1800.0, 0.0, 3600.0)
        assert self.measure(1100) == (1000, 0, 3600.0, 0.0, 3600.0)

    def test_older_than_the_oldest_sample(self) -> None:
        assert self.measure(50) == (2050, 0, 7200.0, 7200.0, None)

    def test_without_an_earlier_sample(self) -> None:
        only = EndHistory([7200 * SECOND], [2100])
        assert self.measure(50, ends=only) == (2050, 0, None, 0.0, None)

    def test_before_the_log(self) -> None:
        assert self.measure(50, start=1000)[:2] == (2050, 950)
        assert self.measure(50, start=2100)[:2] == (2050, 2050)

    def test_beyond_the_log(self) -> None:
        measured = measure(2200, 0, self.ends, commits=[], commits_at=[], known_until=0)
        assert (measured.lag, measured.phantom_lag, measured.status) == (0, 0, "OK")
        assert measured.status_reason == "the committed offset lies beyond the end of the log"

    @pytest.mark.parametrize(("apart", "status"), [(100, "OK"), (101, "STOP")])
    def test_records_that_just_came_stop_nobody(self, apart: int, status: str) -> None:
        """The topic is quiet; the group was at its end, and has had no time for what came."""
        ends = EndHistory([0, 7200 * SECOND - apart * SECOND, 7200 * SECOND], [50, 50, 60])
        measured = measure(
            50, 0, ends, commits=[49, 50], commits_at=[-SECOND, 0], known_until=7200 * SECOND
        )
        assert measured.status == status

    def test_what_came_after_the_commits_were_read_is_no_lag(self) -> None:
        """1,000 records an hour; at 1:30 the log ended at 1,600."""
        measured = self.as_of(5400, 1100)
        assert (measured.lag, measured.lag_min, measured.lag_max) == (500, 0, 1000)
        assert self.seconds(measured) == (1800.0, 0.0, 1800.0)
        measured = self.as_of(5400, 1600)
        assert (measured.lag, measured.lag_min, measured.lag_max) == (0, 0, 500)
        assert self.seconds(measured) == (0.0, 0.0, 0.0)

    @pytest.mark.parametrize("committed", [None, -1, -1001])
    def test_a_number_below_zero_is_no_offset(self, committed: int | None) -> None:
        """Clients take it for none (`ConsumerCoordinator.fetchCommittedOffsets`)."""
        measured = measure(
            committed, 0, self.ends, commits=[7, committed], commits_at=[0, 1], known_until=2
        )
        assert measured == Lag(status_reason=NO_OFFSET, commits_known_until=2)

    @pytest.mark.parametrize("none", [None, -1])
    def test_a_commit_of_no_offset_is_none_of_the_window(self, none: int | None) -> None:
        at = [n * SECOND for n in range(7190, 7200)]
        measured = measure(
            *(1100, 0, self.ends),
            commits=[*(1100,) * 8, none, 1100],
            commits_at=at,
            known_until=7200 * SECOND,
        )
        assert (measured.window_commits, measured.status) == (9, "STALL")

    def test_without_a_sample_before_it_is_an_upper_bound(self) -> None:
        measured = self.as_of(-10, 60)
        assert (measured.lag, measured.lag_min, measured.lag_max) == (40, 0, 40)
        assert measured.lag_is_bound
        assert self.seconds(measured) == (None, 0.0, None)

    @pytest.mark.parametrize(
        ("until", "committed"),
        [
            (-10, 100),  # at the end, which cannot have been further on before
            (5400, 60),  # between two samples: an estimate
            (7200, 60),  # at a sample: exact
            (7300, 60),
        ],
    )
    def test_what_more_is_known_of_is_no_bound(self, until: int, committed: int) -> None:
        assert self.as_of(until, committed).lag_is_bound is False

    def test_a_log_that_did_not_grow_leaves_no_doubt(self) -> None:
        measured = self.as_of(5, 60, EndHistory([0, 10 * SECOND], [100, 100]))
        assert (measured.lag, measured.lag_min, measured.lag_max) == (40, 40, 40)

    def test_of_a_log_that_has_moved_on_no_more_is_gone_than_was_behind(self) -> None:
        measured = measure(
            1100, 2000, self.ends, commits=[], commits_at=[], known_until=5400 * SECOND
        )
        assert (measured.lag, measured.phantom_lag) == (500, 500)


class TestKnownUntil:
    """Partition 0 was read to its end, more lies behind what was read of 1."""

    def known(self, last: int | None) -> dict[int, int]:
        return known_until({0: 5, 1: last}, {0: 10, 1: 20}, {0: 10, 1: 21}, sampled_at=100)

    def test_until_the_last_commit_if_more_may_be_held_back(self) -> None:
        assert self.known(60) == {0: 100, 1: 60}

    def test_never_later_than_now(self) -> None:
        assert self.known(101) == self.known(None) == {0: 100, 1: 100}

    def test_of_a_partition_that_nobody_knows(self) -> None:
        assert known_until({7: 60}, {}, {}, sampled_at=100) == {7: 60}
        assert known_until({7: 60}, {7: 3}, {}, sampled_at=100) == {7: 60}

    def test_a_transaction_that_hangs_stops_nobody(self) -> None:
        """The last commit that could be read is two hours old; the group goes on behind it."""
        at = [SECOND * second for second in range(10)]
        now = 7200 * SECOND
        until = known_until({1: at[-1]}, {1: 20}, {1: 2000}, sampled_at=now)[1]
        ends = EndHistory([0, now], [100, 7300])
        measured = measure(50, 0, ends, commits=OFFSETS, commits_at=at, known_until=until)
        assert measured.status == "OK"
        assert measured.commits_known_until == until


JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class TestClientOptions:
    """What Kafka's client properties mean to kafka-python."""

    def test_nothing_is_plain(self) -> None:
        assert client_options({}) == {"security_protocol": "PLAINTEXT"}

    @pytest.mark.parametrize("quote", ['"', "'"])
    def test_sasl(self, quote: str) -> None:
        password = 'a b=c;\\"d'  # noqa: S105 - of nobody
        quoted = password.replace("\\", "\\\\").replace(quote, f"\\{quote}")
        config = f"{JAAS} username=me password={quote}{quoted}{quote};"
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": config,
        }
        assert client_options(properties) == {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "me",
            "sasl_plain_password": password,
        }

    def test_no_names_are_compared_if_so_asked(self) -> None:
        properties = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
        context = client_options(properties)["ssl_context"]
        assert not context.check_hostname
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert client_options({"security.protocol": "SSL"})["ssl_context"].check_hostname

    @pytest.mark.parametrize(
        ("properties", "words"),
        [
            ({"security.protocol": "SASL_SSL"}, "cannot log in by sasl.mechanism=GSSAPI"),
            ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
            (
                {"security.protocol": "SSL", "ssl.truststore.location": "x"},
                "truststore of type JKS",
            ),
            (
                {
                    "security.protocol": "SSL",
                    "ssl.keystore.type": "PKCS12",
                    "ssl.keystore.location": "x",
                },
                "keystore of type PKCS12",
            ),
            ({"security.protocol": "SSL", "ssl.keystore.key": "canary"}, "ssl.keystore.location"),
        ],
    )
    def test_what_kafka_python_cannot_do(self, properties: dict[str, str], words: str) -> None:
        with pytest.raises(UnsupportedError, match=words) as refusal:
            client_options(properties)
        assert "canary" not in str(refusal.value)

    def test_what_is_wrong_shows_no_secret(self, tmp_path: Path) -> None:
        sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
        with pytest.raises(SourceError, match="names no username") as refusal:
            client_options({**sasl, "sasl.jaas.config": f'{JAAS} password="canary";'})
        assert "canary" not in str(refusal.value)
        (tmp_path / "ca.pem").write_text("canary")
        tls = {"security.protocol": "SSL", "ssl.truststore.type": "PEM"}
        with pytest.raises(SourceError, match="truststore cannot be read as PEM"):
            client_options({**tls, "ssl.truststore.location": str(tmp_path / "ca.pem")})
