"""Members of the new protocol on a real broker.

Behind the other files of the broker: a run that reads of such members makes a table for each type
of their records, which theirs need not do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from schemas.tables import GROUP_STATES, MEMBER_SESSIONS, PARTITION_OWNERS
from tests.support import clients
from tests.support.jobs import succeed, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.broker import Broker


def test_the_history_of_a_group_of_the_new_protocol_is_what_its_members_say(
    spark: SparkSession, broker: Broker, java: str, lakehouse_path: str
) -> None:
    group, topic, at = "new", "of-new-members", broker.bootstrap
    clients.create_topic(at, topic, partitions=3)

    def reported() -> tuple[str, dict[str, list[int]]]:
        succeed("silver", "--bootstrap-servers", at, "--lakehouse", lakehouse_path)
        succeed("history", "--lakehouse", lakehouse_path)
        is_now = (F.col("group_id") == group) & F.col("ended_at").isNull()
        (row,) = table(spark, lakehouse_path, GROUP_STATES.name).where(is_now).collect()
        is_now = (F.col("group_id") == group) & F.col("left_at").isNull()
        members = table(spark, lakehouse_path, MEMBER_SESSIONS.name).where(is_now).collect()
        is_now = (F.col("group_id") == group) & F.col("valid_to").isNull()
        owned: dict[str, list[int]] = {m.member_id: [] for m in members}
        for owner in table(spark, lakehouse_path, PARTITION_OWNERS.name).where(is_now).collect():
            owned[owner.member_id].append(owner.topic_partition)
        return row.state, {member: sorted(partitions) for member, partitions in owned.items()}

    with (
        clients.NewProtocolMember(java, at, group, topic) as first,
        clients.NewProtocolMember(java, at, group, topic) as second,
    ):

        def is_settled() -> bool:
            counts = sorted(len(m.partitions) for m in (first, second))
            return counts == [1, 2] and clients.group_state(at, group) == "Stable"

        clients.wait_until(is_settled, timeout_s=90, what="both members share the partitions")
        members = (first, second)
        assert reported() == ("Stable", {m.member_id: m.partitions for m in members})
    clients.wait_until(lambda: clients.group_state(at, group) == "Empty")
    assert reported() == ("Empty", {})
