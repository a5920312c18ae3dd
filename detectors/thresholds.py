"""The thresholds of the detectors: defaults with reasons, overridden by the user or per group."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

from schemas import toml

Values: TypeAlias = "dict[str, dict[str, float]]"

_OVERRIDES = "overrides"
# These are of the log, not of a group.
_WITHOUT_GROUP = ("cleaner_stalled", "hot_partition")
# To be raised when detectors find or remember something else: causes a full refresh of anomalies.
_RULES = 22


class ThresholdsError(ValueError):
    """A file of thresholds that cannot be used; the text says what to correct."""


@dataclass(frozen=True)
class Override:
    """Other thresholds for the groups whose whole id a regular expression matches."""

    groups: str
    values: Values


@dataclass(frozen=True)
class Thresholds:
    """The thresholds in force."""

    values: Values  # by anomaly kind and name of the threshold
    overrides: tuple[Override, ...] = ()  # what holds for some groups instead; later ones win
    ignored_groups: str | None = None  # regular expression of groups that are left out
    _by_group: dict[tuple[int, ...], Values] = field(default_factory=dict, compare=False)

    def of(self, group_id: str) -> Values:
        """Return the thresholds that hold for a group."""
        matching = tuple(i for i, o in enumerate(self.overrides) if _matches(o.groups, group_id))
        if matching not in self._by_group:
            values = self.values
            for i in matching:
                values = _over(values, self.overrides[i].values)
            self._by_group[matching] = values
        return self._by_group[matching]

    def least(self, kind: str, name: str) -> float:
        """Return the smallest value that a threshold has for any group."""
        others = (o.values.get(kind, {}).get(name) for o in self.overrides)
        return min([self.values[kind][name], *(v for v in others if v is not None)])

    def ignores(self, group_id: str) -> bool:
        """Return whether a group is left out."""
        return self.ignored_groups is not None and _matches(self.ignored_groups, group_id)

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of thresholds and rules: if it changes, the next run is a full refresh."""
        overrides = [[o.groups, o.values] for o in self.overrides]
        declared = [_RULES, self.values, overrides, self.ignored_groups]
        text = json.dumps(declared, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read(defaults: str, own: str | None = None) -> Thresholds:
    """Read the thresholds.

    Args:
        defaults: TOML text of ours: ``[kind.name]`` tables with value, reason and source.
        own: TOML text of the user's: ``[kind]`` tables with ``name = number``, ``[[overrides]]``
            with the same and a ``groups`` pattern, and ``ignored_groups``.

    Raises:
        ThresholdsError: the user's text has an unknown threshold, or a value that is no number.
    """
    ours = toml.loads(defaults)
    ignored = ours.pop("ignored_groups", None)
    values: Values = {
        kind: {name: declared["value"] for name, declared in names.items()}
        for kind, names in ours.items()
    }
    overrides: list[Override] = []
    if own is not None:
        try:
            given = toml.loads(own)
        except ValueError as error:
            raise ThresholdsError(f"is not TOML: {error}") from error
        ignored = _pattern(given.pop("ignored_groups", ignored), "ignored_groups")
        for table in _tables(given.pop(_OVERRIDES, [])):
            groups = _pattern(table.pop("groups", None), "groups of an override")
            if groups is None:
                raise ThresholdsError("an override has no groups, a regular expression")
            for kind in _WITHOUT_GROUP:
                if kind in table:
                    raise ThresholdsError(
                        f"an override has {kind}, which is of the log and not of a group: set it "
                        f"outside of the overrides, as [{kind}]"
                    )
            overrides.append(Override(groups, _checked(table, values)))
        values = _over(values, _checked(given, values))
    return Thresholds(values, tuple(overrides), ignored or None)


def _matches(pattern: str, group_id: str) -> bool:
    """Return whether a pattern matches a whole id, which may have line breaks."""
    return re.fullmatch(pattern, group_id, re.DOTALL) is not None


def _tables(given: object) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not all(isinstance(table, dict) for table in given):
        raise ThresholdsError(
            f"{_OVERRIDES} has to be written as [[{_OVERRIDES}]], in two brackets, once for each "
            "pattern of groups"
        )
    return given


def _pattern(text: object, name: str) -> str | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise ThresholdsError(f"{name} has to be a string")
    try:
        re.compile(text)
    except re.error as error:
        raise ThresholdsError(f"{name}: {text!r} is no regular expression: {error}") from error
    return text


def _checked(given: Mapping[str, Any], known: Values) -> Values:
    for kind, names in given.items():
        if kind not in known or not isinstance(names, dict):
            raise ThresholdsError(f"{kind!r} is no kind of anomaly with thresholds")
        for name, value in names.items():
            if name not in known[kind]:
                raise ThresholdsError(
                    f"{kind} has no threshold {name!r}; it has {', '.join(sorted(known[kind]))}"
                )
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not 0 <= value < math.inf:
                raise ThresholdsError(f"{kind}.{name} has to be a number, 0 or more")
    return {kind: dict(names) for kind, names in given.items()}


def _over(values: Values, above: Values) -> Values:
    return {kind: {**names, **above.get(kind, {})} for kind, names in values.items()}


def read_thresholds(path: str | None) -> Thresholds:
    """Read the thresholds in force: the defaults in conf/, overridden by the user's file.

    Raises:
        ThresholdsError: the user's file cannot be read or used; the text says why.
    """
    own = None
    if path is not None:
        try:
            own = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ThresholdsError(f"cannot be read: {reason}") from error
    ours = resources.files("conf") / "anomalies.toml"
    return read(ours.read_text(encoding="utf-8"), own)
