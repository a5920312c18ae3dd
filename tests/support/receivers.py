"""What receivers of alerts take, as JSON schemas.

They are written from the receivers' own descriptions, which reporting/alerts.py names. They allow
no field that those do not have, and hold the limits that those name.
"""

from __future__ import annotations

from typing import Any


def closed(required: dict[str, Any], **others: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the schema of an object with these properties, and no other."""
    return {
        "type": "object",
        "properties": {**required, **others},
        "required": list(required),
        "additionalProperties": False,
    }


def text_of(longest: int | None = None) -> dict[str, Any]:
    return {"type": "string", "minLength": 1} | ({"maxLength": longest} if longest else {})


ADDRESS = {"type": "string", "pattern": r"^https?://[^\s<>|]+$"}
TIME = {
    "type": "string",
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$",
}
SLACK_TEXT = {
    "oneOf": [
        closed(
            {
                "type": {"const": "mrkdwn"},
                "text": text_of(3_000),
                "verbatim": {"const": True},
            }
        ),
        closed(
            {
                "type": {"const": "plain_text"},
                "text": text_of(3_000),
                "emoji": {"const": False},
            }
        ),
    ]
}
TEAMS_RUN = closed(
    {"type": {"const": "TextRun"}, "text": text_of()},
    weight={"enum": ["Lighter", "Default", "Bolder"]},
    size={"enum": ["Default", "Small", "Medium", "Large", "ExtraLarge"]},
    color={"enum": ["Default", "Dark", "Light", "Accent", "Good", "Warning", "Attention"]},
)
TEAMS_TEXT = closed(
    {
        "type": {"const": "RichTextBlock"},
        "inlines": {"type": "array", "items": TEAMS_RUN, "minItems": 1},
    },
    spacing={"enum": ["None", "Small", "Default", "Medium", "Large"]},
)
TEAMS_OPEN = closed({"type": {"const": "Action.OpenUrl"}, "title": text_of(), "url": ADDRESS})
TEAMS_CARD = closed(
    {
        "$schema": {"const": "http://adaptivecards.io/schemas/adaptive-card.json"},
        "type": {"const": "AdaptiveCard"},
        "version": {"enum": ["1.2", "1.3", "1.4", "1.5"]},
        "body": {
            "type": "array",
            "items": {
                "anyOf": [
                    TEAMS_TEXT,
                    closed(
                        {
                            "type": {"const": "Container"},
                            "items": {"type": "array", "items": TEAMS_TEXT, "minItems": 1},
                        },
                        separator={"type": "boolean"},
                        selectAction=TEAMS_OPEN,
                    ),
                ]
            },
        },
    },
    msteams=closed({"width": {"const": "Full"}}),
    actions={"type": "array", "items": TEAMS_OPEN, "maxItems": 6},
)
LABELS = {
    "type": "object",
    "additionalProperties": text_of(),
    "propertyNames": {"pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"},
}
ROUTED = {
    "routing_key": text_of(32),
    "dedup_key": text_of(255),
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "json": closed(
        {
            "text": text_of(40_000),
            "cluster": text_of(),
            "report": {"type": ["string", "null"]},
            "anomalies": {"type": "array", "items": {"type": "object"}},
            "resolved": {"type": "array", "items": {"type": "object"}},
        }
    ),
    "slack": closed(
        {
            "text": text_of(),
            "blocks": {
                "type": "array",
                "maxItems": 50,
                "items": closed({"type": {"const": "section"}, "text": SLACK_TEXT}),
            },
        }
    ),
    "teams": closed(
        {
            "type": {"const": "message"},
            "attachments": {
                "type": "array",
                "minItems": 1,
                "maxItems": 1,
                "items": closed(
                    {
                        "contentType": {"const": "application/vnd.microsoft.card.adaptive"},
                        "contentUrl": {"const": None},
                        "content": TEAMS_CARD,
                    }
                ),
            },
        }
    ),
    "pagerduty": {
        "oneOf": [
            closed({**ROUTED, "event_action": {"const": "resolve"}}),
            closed(
                {
                    **ROUTED,
                    "event_action": {"const": "trigger"},
                    "payload": closed(
                        {
                            "summary": text_of(1_024),
                            "source": text_of(),
                            "severity": {"enum": ["critical", "error", "warning", "info"]},
                        },
                        timestamp=TIME,
                        component={"type": "string"},
                        group=text_of(),
                        custom_details={"type": "object"},
                        **{"class": text_of()},
                    ),
                },
                client=text_of(),
                client_url=ADDRESS,
                links={
                    "type": "array",
                    "items": closed({"href": ADDRESS, "text": text_of()}),
                },
            ),
        ]
    },
    "alertmanager": {
        "type": "array",
        "items": closed(
            {"labels": {**LABELS, "required": ["alertname"]}},
            annotations=LABELS,
            startsAt=TIME,
            endsAt=TIME,
            generatorURL=ADDRESS,
        ),
    },
}
