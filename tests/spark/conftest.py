"""What holds for the tests of jobs in one session."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def _interpreted() -> Iterator[None]:
    """Have the queries of a report, as all others, interpreted: of few rows, to compile is most.

    Those of `tests/browser` and `tests/e2e` are compiled, as a user's are.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.runtime.report.configured", lambda *_: nullcontext())
        yield
