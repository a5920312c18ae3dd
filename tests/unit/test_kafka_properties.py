"""Kafka client properties from a file: what a line may be, and what variables stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import SourceError
from sources.kafka import read_properties


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "client.properties"


def test_lines(file: Path) -> None:
    file.write_text("# a comment\n\n a = b c \nd: e\nf g\n! another\nlong=one,\\\n  two\nempty=\n")
    found = {"a": "b c", "d": "e", "f": "g", "long": "one,two", "empty": ""}
    assert read_properties(str(file)) == found


def test_what_a_variable_holds_is_taken_as_it_is(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password may look like a variable, and hold what means something to patterns."""
    monkeypatch.setenv("LEDGER_OUTER", r"a ${env:LEDGER_INNER} \1 \g<0> $1 = # b")
    monkeypatch.setenv("LEDGER_INNER", "never")
    file.write_text("password=<${env:LEDGER_OUTER}>${env:LEDGER_INNER}\n")
    found = read_properties(str(file))["password"]
    assert found == r"<a ${env:LEDGER_INNER} \1 \g<0> $1 = # b>never"


@pytest.mark.parametrize("text", ["=hunter2\n", "secret\n", "a=${env:LEDGER_NOT_SET}hunter2\n"])
def test_a_wrong_line_is_named_by_its_number(file: Path, text: str) -> None:
    file.write_text(f"ok=1\n{text}")
    with pytest.raises(SourceError) as raised:
        read_properties(str(file))
    assert "line 2" in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert "secret" not in str(raised.value)
