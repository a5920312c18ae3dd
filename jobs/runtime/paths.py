"""Where the files are that are not shipped with the code: examples/."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(os.environ.get("GROUPLEDGER_HOME", Path(__file__).resolve().parents[2]))
"""The checkout; the launcher names it, since the code may run from a zip."""
