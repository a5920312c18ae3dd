"""A lakehouse: its tables, and the ledger of the runs that wrote them."""

from __future__ import annotations

from functools import cached_property

from storage.local import quickest
from storage.runs import Runs
from storage.tables import Tables


class Lakehouse(Tables):
    """The tables of one lakehouse, as one cluster's jobs see them, and the ledger of its runs."""

    @cached_property
    def runs(self) -> Runs:
        """The ledger of this cluster's runs."""
        return Runs(self, quickest(self))
