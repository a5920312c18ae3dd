"""What texts of the user take from the environment, so that no secret needs to be in a file."""

from __future__ import annotations

import os
import re


def with_environment(text: str) -> str:
    """Replace ``${env:NAME}`` by the values of environment variables.

    Raises:
        KeyError: a variable is not set; its name is the argument.
    """
    return re.sub(r"\$\{env:([^}]+)\}", lambda match: os.environ[match[1]], text)
