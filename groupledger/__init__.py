"""The full history of every Kafka consumer group, as Delta tables.

`groupledger.lakehouse` gives the tables to a Spark session of your own, such as a notebook's.
"""

from __future__ import annotations

from groupledger.notebook import Ledger, lakehouse

__all__ = ["Ledger", "lakehouse"]
