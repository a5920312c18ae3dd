"""With --hash-clients, no table behind bronze names a client, and nothing else changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from decoders.clients import HASHED, MEMBERS, ClientKey
from launch.options import HASH_KEY
from schemas.tables import MEMBER_SESSIONS, all_tables, decoded_table
from storage.lakehouse import Lakehouse
from tests.conftest import RECORDINGS
from tests.support.jobs import asked, contents, is_balanced, rows_of, run, succeed, table
from tests.support.parts import parts_of

SECRET = "a secret for the tests"  # noqa: S105
OTHER = "another secret for them"
RECORDING = RECORDINGS / "4.3.1-storm.parquet"


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv(HASH_KEY, SECRET)
    return monkeypatch


@pytest.fixture(scope="module")
def hashed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A lakehouse of the recording that `storm` has, with hashes; and what the run said."""
    assert spark is not None
    root = tmp_path_factory.mktemp("hashed") / "lakehouse"
    argv = ("--records", RECORDING, "--lakehouse", root, "--cluster", "one", "--hash-clients")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HASH_KEY, SECRET)
        outcome = run("pipeline", *argv)
    assert outcome.status == 0, outcome.err
    return root, outcome.out + outcome.err


def names_of(spark: SparkSession, root: str) -> set[str]:
    """Return ids and hosts of clients of a lakehouse, those that nothing else is called."""
    rows = rows_of(Lakehouse(spark, root, "one"), decoded_table("group_metadata"))
    found = {
        m[n] for row in rows for m in row["members"] or () for n in ("client_id", "client_host")
    }
    return {name for name in found if name.startswith(("crash-", "flapper-", "/127."))}


def test_no_table_names_a_client(spark: SparkSession, storm: str, hashed: tuple[Path, str]) -> None:
    root, said = hashed
    names = names_of(spark, storm)
    assert len(names) > 10
    assert not [name for name in (*names, SECRET) if name in said]
    assert is_balanced(root, "one")
    lakehouse = Lakehouse(spark, str(root), "one")
    looked_at = 0
    for spec in all_tables().values():
        if spec.name.startswith("bronze.") or not lakehouse.exists(spec):
            continue
        looked_at += 1
        for row in rows_of(lakehouse, spec):
            # Bytes that embed what a client sent are kept, and text of its commits.
            text = repr({k: v for k, v in row.items() if k != "metadata"})
            assert not [name for name in (*names, SECRET) if name in text], (spec.name, text)
    assert looked_at > 14
    page = (root / "report-one.html").read_text("utf-8")
    assert not [name for name in (*names, SECRET) if name in page]


def test_all_else_is_the_same_as_without(
    spark: SparkSession, storm: str, hashed: tuple[Path, str]
) -> None:
    root = str(hashed[0])
    theirs, ours = contents(spark, storm, "one"), contents(spark, root, "one")
    same = {name for name in ours if ours[name] == theirs[name]}
    assert {"gold.group_states", "gold.offset_progress", "silver.offset_commits"} <= same
    assert "gold.member_sessions" not in same
    for name in (
        "gold.group_generations",
        "gold.member_sessions",
        "gold.partition_owners",
        "gold.anomalies",
    ):
        assert len(ours[name]) == len(theirs[name]) > 0, name
    key = ClientKey(SECRET)
    columns = ("client_id", "client_host", "member_id", "joined_at")
    text = f"SELECT {', '.join(columns)} FROM {MEMBER_SESSIONS.name}"
    plain, changed = ([tuple(row.values()) for row in asked(at, text)] for at in (storm, root))
    assert sorted(changed) == sorted(
        (key.hash(client), key.hash(host), key.hash_member(member), at)
        for client, host, member, at in plain
    )
    assert len({row[0] for row in changed}) == len({row[0] for row in plain})


def test_names_of_clients_are_not_mixed(
    hashing: pytest.MonkeyPatch, spark: SparkSession, tmp_path: Path
) -> None:
    """Under another name each client would seem to leave, and another one to come."""
    root = tmp_path / "lakehouse"
    first, second, third = parts_of(RECORDINGS / "4.3.1-connect.parquet", tmp_path, 3)
    succeed("silver", "--lakehouse", root, "--records", first, "--hash-clients")
    succeed("ingest", "--lakehouse", root, "--records", second)
    outcome = run("decode", "--lakehouse", root)
    assert outcome.status == 1
    assert "holds hashes instead of clients: give --hash-clients" in outcome.complaint
    hashing.setenv(HASH_KEY, OTHER)
    outcome = run("decode", "--lakehouse", root, "--hash-clients")
    assert outcome.status == 1
    assert "hashes of clients by another key" in outcome.complaint
    assert OTHER not in outcome.err
    hashing.setenv(HASH_KEY, SECRET)
    assert succeed("decode", "--lakehouse", root, "--hash-clients")["decoded"] > 0
    # Rebuilt from bronze, as the line says.
    shutil.rmtree(root / "silver")
    succeed("silver", "--lakehouse", root, "--records", third)
    outcome = run("decode", "--lakehouse", root, "--hash-clients")
    assert outcome.status == 1
    assert "holds the names of clients as they are: leave --hash-clients out" in outcome.complaint
    rows = table(spark, str(root), decoded_table("group_metadata").name).collect()
    urls = {m.connect_subscription.url for r in rows for m in r.members if m.connect_subscription}
    assert all(url.startswith("http") for url in urls)
    assert urls


def test_what_is_hashed_has_no_name_of_its_own_in_gold() -> None:
    """Gold takes its clients from silver, under the same names of columns."""
    names = {c.name for s in all_tables().values() for c in s.columns}
    assert {"client_id", "client_host", "member_id"} <= names & (HASHED | MEMBERS)
