"""The sentences of anomalies, by the forms that evidence takes in them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from detectors.sentences import _EVIDENCE, _FORMS, _SENTENCES, KINDS, summary

GIVEN = {"of": "g", "when": "12:00:00 UTC", "ms": 600_000, "subject": "s", "label": None}


@pytest.mark.parametrize("key", _SENTENCES)
def test_every_form_is_known_and_every_bracket_is_closed(key: str) -> None:
    sentence = _SENTENCES[key]
    for _, form in _EVIDENCE.findall(sentence):
        assert form.partition(" ")[0] in _FORMS or "/" in form or format(1, form)
    without = re.sub(r"\[[^\[\]]*\]", "", _EVIDENCE.sub("", sentence))
    assert not set(without) & set("[]{}|?")
    assert key.partition(" ")[0] in KINDS


@pytest.mark.parametrize(
    ("kind", "evidence", "expected"),
    [
        pytest.param(
            "leader_rejoin_loop",
            {"rejoins": 1, "subject": ""},
            "The leader of g started 1 rebalance although no member joined or left (12:00:00 UTC).",
            id="without what is empty",
        ),
        pytest.param(
            "orphan_topic",
            {"label": "abandoned", "partitions": 2, "lag": 0},
            "g holds 2 offsets of s, but no member subscribed to it for 10 min (12:00:00 UTC).",
            id="the sentence of a label",
        ),
        pytest.param(
            "protocol_change",
            {"label": "conversion", "listed_changes": ["a to b", "b to c"]},
            "The protocol of g changed from a to b, then from b to c (12:00:00 UTC).",
            id="a part for a label",
        ),
        pytest.param(
            "coverage_gap",
            {"label": "truncated", "offsets": 1},
            "1 offset of partition s of the offsets topic was deleted from the log before it could"
            " be ingested.",
            id="words by a number",
        ),
        pytest.param(
            "static_member_fencing",
            {"subject": "{of}[x|y?]", "clients": ["[a", "b]{ms:duration}"], "replacements": 2},
            "[a and b]{ms:duration} of g share group.instance.id {of}[x|y?]: it was taken over 2"
            " times in 10 min (12:00:00 UTC). Give each an id of its own.",
            id="names of users stand as they are",
        ),
    ],
)
def test_evidence_fills_a_sentence(kind: str, evidence: dict[str, Any], expected: str) -> None:
    assert summary(kind, {**GIVEN, **evidence}) == expected
