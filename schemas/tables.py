"""Our tables, each declared once: what one row is, its columns, what is kept for skipping files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from schemas import gold
from schemas.columns import ArrayOf, Column, Primitive, StructOf, column
from schemas.silver import decoded_columns, quarantine_columns, silver_tables

FORMAT_VERSION = 2
"""Version of the tables' layout as a whole; a lakehouse of a later one is refused."""

NOT_LOST = COMPACTED, MARKER = "compacted", "transaction marker"
LOST = TRUNCATED, NOT_READ = "truncated", "not read"
HOLE_REASONS = (*NOT_LOST, *LOST)
"""Why offsets have no record in the lakehouse, see the column of bronze.coverage: running more
often, or other files, can prevent those that are `LOST`."""

_CLUSTER = column("cluster", "string", "Name of the Kafka cluster, as given by --cluster.")


@dataclass(frozen=True)
class TableSpec:
    """One Delta table."""

    name: str  # layer and table: ``bronze.records``
    grain: str  # what one row is
    columns: tuple[Column, ...]  # all columns, `cluster` first; the tables are partitioned by it
    key: tuple[str, ...]  # the columns that no two rows share
    # Columns whose least and greatest value Delta keeps a file, to skip files by.
    skipping: tuple[str, ...]
    partitions: tuple[str, ...] = ("cluster",)  # columns whose every value has files of its own
    key_gaps: tuple[str, ...] = ()  # columns of the key that may be null
    # By name, SQL that is true of each row, and not null; Delta takes no other. What rests on the
    # times of a log is no constraint: a log that cannot be true has to be reported, too, and
    # dq/suites says what is odd about it.
    constraints: tuple[tuple[str, str], ...] = ()

    @property
    def short_name(self) -> str:
        """The name without its layer, by which rows of several tables in one tell theirs."""
        return self.name.partition(".")[2]

    @property
    def required(self) -> tuple[str, ...]:
        """Name the columns that are never null."""
        return tuple(column for column in self.key if column not in self.key_gaps)

    @property
    def of_cluster(self) -> tuple[Column, ...]:
        """Return the columns within one cluster: all but its name."""
        return tuple(column for column in self.columns if column.name != "cluster")

    @property
    def run_column(self) -> str | None:
        """Name the column with the number of the run that wrote a row; None without one."""
        return next((name for name in self.skipping if name.split("_")[-1] == "run"), None)


_AT_A_POSITION = ("position", "record_partition >= 0 AND record_offset >= 0")
_A_TYPE = ("group_type", "group_type IN ('classic', 'consumer', 'share', 'streams')")


def _one_of(name: str, *values: str) -> tuple[str, str]:
    return name, f"{name} IN ({', '.join(map(repr, values))})"


RECORDS = TableSpec(
    name="bronze.records",
    grain="One row per record of __consumer_offsets, as read.",
    columns=(
        _CLUSTER,
        column("topic", "string", "Topic the record was read from."),
        column("record_partition", "int", "Partition of the topic."),
        column("record_offset", "bigint", "Offset of the record in its partition."),
        column(
            "record_timestamp",
            "timestamp",
            "Time the broker gave the record; null in records of brokers before 0.10.",
        ),
        column(
            "timestamp_type",
            "string",
            "What the time is, in Kafka's words: CreateTime, LogAppendTime or NoTimestampType.",
        ),
        column("key", "binary", "The key's bytes; null if the record has none."),
        column("value", "binary", "The value's bytes; null for a tombstone."),
        column("ingested_at", "timestamp", "Start of the ingest run that brought the record."),
        column("ingest_run", "bigint", "Number of that run; rises by one with each of a cluster."),
    ),
    key=("cluster", "topic", "record_partition", "record_offset"),
    skipping=("record_partition", "record_offset", "record_timestamp", "ingest_run"),
    constraints=(_AT_A_POSITION,),
)

COVERAGE = TableSpec(
    name="bronze.coverage",
    grain="One row per ingest run and partition that had something new.",
    columns=(
        _CLUSTER,
        column("topic", "string", "Topic that was read."),
        column("record_partition", "int", "Partition of the topic."),
        column("ingest_run", "bigint", "Number of the ingest run."),
        column("observed_at", "timestamp", "Start of the run, before the source was asked."),
        column(
            "source",
            "string",
            "Where the records came from: kafka or parquet; null if the run was killed before it"
            " could say, and accounted for by the next.",
        ),
        column(
            "isolation_level",
            "string",
            "read_committed or read_uncommitted; null for files, which do not say.",
        ),
        column("topic_id", "string", "Id of the topic as Kafka prints it; null for files."),
        column(
            "kafka_cluster_id",
            "string",
            "Id of the Kafka cluster, which its brokers give; null for files.",
        ),
        column("first_offset_available", "bigint", "First offset that the source still had."),
        column(
            "last_offset_available",
            "bigint",
            "Last offset that the source had; those from `next_offset` on are hidden by an open"
            " transaction.",
        ),
        column("partitions", "int", "How many partitions the topic had; null for files."),
        column("from_offset", "bigint", "First offset of the range that this run accounts for."),
        column("next_offset", "bigint", "Offset behind that range: where the next run starts."),
        column("record_count", "bigint", "Records of the range that this run added."),
        column("first_offset_read", "bigint", "Offset of the first of them; null without any."),
        column("last_offset_read", "bigint", "Offset of the last of them; null without any."),
        Column(
            "holes",
            ArrayOf(
                StructOf(
                    (
                        column("start_offset", "bigint", "First offset of the hole."),
                        column("end_offset", "bigint", "Last offset of the hole."),
                        column(
                            "reason",
                            "string",
                            "compacted: no record there, removed by compaction or taken by a"
                            " transaction marker or an aborted transaction, or left out of the"
                            " files, or before what was read first; transaction marker: where the"
                            " files have the end of a transaction; truncated: deleted from the log"
                            " before it could be read; not read: not in the source.",
                        ),
                    )
                )
            ),
            "Offsets of the range without a record in the lakehouse; empty if it is complete.",
        ),
    ),
    key=("cluster", "topic", "record_partition", "ingest_run"),
    skipping=("record_partition", "ingest_run", "observed_at"),
    constraints=(("range", "from_offset >= 0 AND next_offset >= from_offset"),),
)

RUNS = TableSpec(
    name="bronze.runs",
    grain="One row per run of a stage and state (planned, done): the ledger of what ran when.",
    columns=(
        _CLUSTER,
        column(
            "stage",
            "string",
            "ingest, decode, history, lag, anomalies or validate: the job's name.",
        ),
        column("run", "bigint", "Number of the run; those of a stage rise by one."),
        column("state", "string", "planned: the range is fixed; done: all tables have it."),
        column("at", "timestamp", "When the row was written."),
        column(
            "after_run",
            "bigint",
            "Exclusive lower bound: the run processed later runs of the stage before (decode:"
            " ingest, history: decode, anomalies: history); -1 for all from the start.",
        ),
        column("to_run", "bigint", "Inclusive upper bound of those runs."),
        column(
            "is_refresh",
            "boolean",
            "A full refresh: it took everything from the start, and replaced what earlier runs"
            " wrote.",
        ),
        column("seconds", "double", "How long the run took; null while planned."),
        Column(
            "rows",
            ArrayOf(
                StructOf(
                    (
                        column("table_name", "string", "Layer and table."),
                        column("rows", "bigint", "Rows that the run wrote to it."),
                    )
                )
            ),
            "What came into which table; null while planned.",
        ),
        column("details", "string", "What the stage itself notes, as a JSON object."),
        column("token", "string", "Tells the plans of two runs at the same time apart."),
        column("format_version", "int", "Version of the tables' layout that the run wrote."),
    ),
    key=("cluster", "stage", "run", "state", "token"),
    skipping=("stage", "run", "at"),
    constraints=(("state", "state IN ('planned', 'done')"),),
)

_DECODE_RUN = column(
    "decode_run", "bigint", "Number of the decode run that brought the row; rises by one."
)

QUARANTINE = TableSpec(
    name="silver.quarantine",
    grain="One row per record that could not be decoded, with its bytes and the reason.",
    columns=(
        _CLUSTER,
        *quarantine_columns(),
        column("decoder", "string", "Release and declarations of the decoder that refused it."),
        _DECODE_RUN,
    ),
    key=("cluster", "record_partition", "record_offset"),
    skipping=("record_partition", "record_offset", "record_timestamp", "decode_run"),
    constraints=(_AT_A_POSITION,),
)


@cache
def decoded_table(table: str) -> TableSpec:
    """Return the silver table that records of some types decode into: ``offset_commits``."""
    skipping = ["record_partition", "record_offset", "record_timestamp", "decode_run"]
    skipping += [c.name for c in decoded_columns(table) if c.name == "group_id"]
    return TableSpec(
        name=f"silver.{table}",
        grain=silver_tables()[table][-1].grain,
        columns=(_CLUSTER, *decoded_columns(table), _DECODE_RUN),
        key=("cluster", "record_partition", "record_offset"),
        skipping=tuple(skipping),
        constraints=(_AT_A_POSITION,),
    )


_OPEN_APART = ("cluster", "is_settled")

GROUP_STATES = TableSpec(
    name="gold.group_states",
    grain="One row per interval that a group spent in a state.",
    columns=(_CLUSTER, *gold.GROUP_STATES, gold.HISTORY_RUN),
    key=("cluster", "group_id", "sequence"),
    skipping=("group_id", "started_at", "ended_at", "history_run"),
    partitions=_OPEN_APART,
    constraints=(_A_TYPE, _one_of("evidence", "exact", "bounded")),
)
GROUP_GENERATIONS = TableSpec(
    name="gold.group_generations",
    grain="One row per generation, or group epoch, of a group.",
    columns=(_CLUSTER, *gold.GROUP_GENERATIONS, gold.HISTORY_RUN),
    key=("cluster", "group_id", "record_partition", "record_offset"),
    skipping=("group_id", "join_started_at", "stable_at", "ended_at", "cause", "history_run"),
    partitions=_OPEN_APART,
    constraints=(_A_TYPE,),
)
MEMBER_SESSIONS = TableSpec(
    name="gold.member_sessions",
    grain="One row per session of a member in a group.",
    columns=(_CLUSTER, *gold.MEMBER_SESSIONS, gold.HISTORY_RUN),
    key=("cluster", "group_id", "member_id", "record_partition", "record_offset"),
    skipping=("group_id", "joined_at", "left_at", "client_id", "history_run"),
    partitions=_OPEN_APART,
    constraints=(_A_TYPE,),
)
PARTITION_OWNERS = TableSpec(
    name="gold.partition_owners",
    grain="One row per period in which a member owned a partition.",
    columns=(_CLUSTER, *gold.PARTITION_OWNERS, gold.HISTORY_RUN),
    key=(
        "cluster",
        "group_id",
        "topic",
        "topic_id",
        "topic_partition",
        "member_id",
        "record_partition",
        "record_offset",
    ),
    skipping=("group_id", "topic", "topic_partition", "valid_from", "valid_to", "history_run"),
    partitions=_OPEN_APART,
    key_gaps=("topic", "topic_id"),
    constraints=(_A_TYPE,),
)
OFFSET_PROGRESS = TableSpec(
    name="gold.offset_progress",
    grain="One row per group, topic, partition and hour with a commit.",
    columns=(_CLUSTER, *gold.OFFSET_PROGRESS),
    key=("cluster", "group_id", "topic", "topic_partition", "hour"),
    skipping=("group_id", "topic", "hour"),
    key_gaps=("hour",),
)
COMMITTED_OFFSETS = TableSpec(
    name="gold.committed_offsets",
    grain="One row per group, topic and partition: the last commit.",
    columns=(_CLUSTER, *gold.COMMITTED_OFFSETS),
    key=("cluster", "group_id", "topic", "topic_partition"),
    skipping=("group_id", "topic", "committed_at"),
)
OFFSET_MOVES = TableSpec(
    name="gold.offset_moves",
    grain="One row per commit that goes back, skips far ahead, deletes the offset, or is the first"
    " after a deletion or a long pause.",
    columns=(_CLUSTER, *gold.OFFSET_MOVES),
    key=("cluster", "record_partition", "record_offset"),
    skipping=("group_id", "topic", "at", "history_run"),
)
LAG = TableSpec(
    name="gold.lag",
    grain="One row per lag run, group, topic and partition with a committed offset.",
    columns=(_CLUSTER, *gold.LAG),
    key=("cluster", "lag_run", "group_id", "topic", "topic_partition"),
    skipping=("group_id", "topic", "sampled_at", "lag_run"),
    constraints=(("lag", "lag IS NULL OR lag >= 0"),),
)
LOG_OFFSETS = TableSpec(
    name="gold.log_offsets",
    grain="One row per partition that a group has a committed offset of: its log as last seen.",
    columns=(_CLUSTER, *gold.LOG_OFFSETS),
    key=("cluster", "topic", "topic_partition"),
    skipping=("topic", "sampled_at"),
)
GROUP_CHECKPOINTS = TableSpec(
    name="gold.group_checkpoints",
    grain="One row per group: the state from which the next history run resumes.",
    columns=(_CLUSTER, *gold.GROUP_CHECKPOINTS),
    key=("cluster", "group_id"),
    skipping=("group_id", "history_run"),
)
ANOMALIES = TableSpec(
    name="gold.anomalies",
    grain="One row per anomaly: an episode with a start and an end.",
    columns=(_CLUSTER, *gold.ANOMALIES, gold.ANOMALIES_RUN),
    key=("cluster", "anomaly_id"),
    skipping=("kind", "severity", "group_id", "started_at", "ended_at", "anomalies_run"),
    partitions=_OPEN_APART,
    constraints=(_one_of("severity", "info", "warning", "critical"),),
)
INCIDENTS = TableSpec(
    name="gold.incidents",
    grain="One row per incident: anomalies of many groups that one cause is behind.",
    columns=(_CLUSTER, *gold.INCIDENTS, gold.ANOMALIES_RUN),
    key=("cluster", "incident_id"),
    skipping=("cause", "severity", "started_at", "ended_at", "anomalies_run"),
    constraints=(_one_of("severity", "info", "warning", "critical"),),
)
GROUP_HEALTH = TableSpec(
    name="gold.group_health",
    grain="One row per group: how it is now.",
    columns=(_CLUSTER, *gold.GROUP_HEALTH),
    key=("cluster", "group_id"),
    skipping=("group_id", "health"),
    constraints=(_one_of("health", "ok", "info", "warning", "critical"),),
)
ANOMALY_CHECKPOINTS = TableSpec(
    name="gold.anomaly_checkpoints",
    grain="One row per group: the state from which the next anomalies run resumes.",
    columns=(_CLUSTER, *gold.ANOMALY_CHECKPOINTS),
    key=("cluster", "group_id"),
    skipping=("group_id", "anomalies_run"),
    key_gaps=("group_id",),
)
ALERTS = TableSpec(
    name="gold.alerts",
    grain="One row per step of posting an anomaly to a webhook.",
    columns=(_CLUSTER, *gold.ALERTS),
    key=("cluster", "anomaly_id", "severity", "step", "at"),
    skipping=("anomaly_id", "at"),
)
RESULTS = TableSpec(
    name="dq.results",
    grain="One row per expectation and validation run.",
    columns=(
        _CLUSTER,
        column("validation_run", "bigint", "Number of the validation run."),
        column("table_name", "string", "Table that the expectation is about."),
        column("expectation", "string", "What is expected, by its name in dq/suites."),
        column("meaning", "string", "The same as a sentence."),
        column("severity", "string", "How bad it is if it fails: warning or critical."),
        column("success", "boolean", "It held."),
        column("rows_checked", "bigint", "Rows that were looked at."),
        column("rows_unexpected", "bigint", "Rows that break it."),
        column("threshold", "double", "Share of the rows that may break it."),
        column("query", "string", "SQL that shows the rows that break it, for the job sql."),
        Column(
            "sample",
            ArrayOf(Primitive("string")),
            "Keys of up to three of them, as JSON; times as milliseconds since 1970.",
        ),
        column("at", "timestamp", "When the run began."),
    ),
    key=("cluster", "validation_run", "table_name", "expectation"),
    skipping=("validation_run", "table_name", "at"),
    constraints=(_one_of("severity", "info", "warning", "critical"),),
)
_GOLD = (
    GROUP_STATES,
    GROUP_GENERATIONS,
    MEMBER_SESSIONS,
    PARTITION_OWNERS,
    OFFSET_PROGRESS,
    OFFSET_MOVES,
    COMMITTED_OFFSETS,
    LAG,
    LOG_OFFSETS,
    GROUP_CHECKPOINTS,
    ANOMALIES,
    INCIDENTS,
    GROUP_HEALTH,
    ANOMALY_CHECKPOINTS,
    ALERTS,
)


@cache
def silver_specs() -> dict[str, TableSpec]:
    """Return the tables that hold each record once, the quarantine among them, by their names."""
    specs = (*map(decoded_table, silver_tables()), QUARANTINE)
    return {spec.name: spec for spec in specs}


@cache
def all_tables() -> dict[str, TableSpec]:
    """Return every table of a lakehouse by its name, in the order of the data's way."""
    specs = (RECORDS, COVERAGE, RUNS, *silver_specs().values(), *_GOLD, RESULTS)
    return {spec.name: spec for spec in specs}
