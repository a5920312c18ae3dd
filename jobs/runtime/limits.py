"""Reads the thresholds of the detectors: the defaults in conf/, overridden by the user's file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from detectors import thresholds
from detectors.thresholds import Thresholds


def read_thresholds(path: str | None) -> Thresholds:
    """Read the thresholds in force.

    Raises:
        ThresholdsError: the user's file cannot be read or used; the text says why.
    """
    own = None
    if path is not None:
        try:
            own = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise thresholds.ThresholdsError(f"cannot be read: {reason}") from error
    ours = resources.files("conf") / "anomalies.toml"
    return thresholds.read(ours.read_text(encoding="utf-8"), own)
