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


# What one who is paged is to do: a sentence, or what follows a colon, begins with it.
_STEPS = re.compile(
    r"\b(Ask|Commit|Delete|Find out|Finish|Give|Have it|Look|Lower|Raise|Read its logs|Restart|Run"
    r"|Split|Start|Take)\b|[:?] ?(finish|give|look|upgrade)\b"
)
# Told as an info alone.
_INFOS = {"offsets_expired deleted"}


@pytest.mark.parametrize("key", sorted(_SENTENCES.keys() - _INFOS))
def test_a_sentence_names_the_next_step(key: str) -> None:
    assert _STEPS.search(_SENTENCES[key])


@pytest.mark.parametrize(
    ("kind", "evidence", "expected"),
    [
        pytest.param(
            "leader_rejoin_loop",
            {"rejoins": 1, "subject": ""},
            "g rebalanced 1 time although no member joined for good or left (12:00:00 UTC): its"
            " leader joined again, or a member came and went before all had joined. Look for topics"
            " whose metadata change back and forth (regular expressions, brokers of different"
            " versions), and for a client that gives up as it joins.",
            id="without what is empty",
        ),
        pytest.param(
            "orphan_topic",
            {"label": "abandoned", "partitions": 2, "lag": 0},
            "g holds 2 offsets of s, but no member subscribed to it for 10 min (12:00:00 UTC)."
            " Delete them if nobody needs them, or start a consumer of it.",
            id="the sentence of a label",
        ),
        pytest.param(
            "protocol_change",
            {"label": "conversion", "listed_changes": ["a to b", "b to c"]},
            "The protocol of g changed from a to b, then from b to c (12:00:00 UTC). Where it goes"
            " back and forth, two deployments disagree: finish one.",
            id="a part for a label",
        ),
        pytest.param(
            "offset_rewind",
            {"label": "no_members", "rewinds": 1, "offsets": 7, "partitions": 1, "moves": ["m"]},
            "g committed a smaller offset 1 time (12:00:00 UTC), 7 offsets of 1 partition in all:"
            " m. These records are read again: look for a seek, a start from an older state, a"
            " second job that commits to the group, or a tool that sets its offsets.",
            id="a label behind evidence that is not there",
        ),
        pytest.param(
            "offset_reset",
            {"label": "back", "partitions": 1, "resets": ["t/0: 7 to 3"]},
            "Offsets of 1 partition of g were set back while it had no members (12:00:00 UTC): t/0:"
            " 7 to 3. Ask who ran a reset, or who let a job with assign() take the group over: the"
            " log does not say.",
            id="both are asked for",
        ),
        pytest.param(
            "coverage_gap",
            {"label": "truncated", "offsets": 1},
            "1 offset of partition s of the offsets topic was deleted from the log before it could"
            " be ingested. Run more often.",
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
