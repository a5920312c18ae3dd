"""The options of every job, each declared once: its name, type, default and help text.

A part is a class of options that belong together; the class of a job puts parts together.
`command_line` makes of them the command line, the help, docs/options.md and the completion of
shells.

Nothing here needs Spark, so that help and usage errors come at once.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from cyclopts import Group, Parameter, Token

from launch import times
from schemas.environment import with_environment

HASH_KEY = "GROUPLEDGER_HASH_KEY"
"""The environment variable with the key of --hash-clients."""
_LEAST_HASH_KEY = 16
_PORTS = 2**16
_MOST_ROWS = 2**31 - 1
# A run that takes longer than this would lose the files that it has not committed.
_LEAST_VACUUM_HOURS = 24
_CLUSTER_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_DEFAULT_CLUSTER = "default"
_SECONDS = {"s": 1, "m": 60, "h": 3600}
EVERY_CLUSTER = "*"
"""The name that stands for all clusters, where one may look at all."""
EVERY_TOPIC = "*"
"""The name that stands for all topics."""


def _group(title: str, order: int = 0) -> Parameter:
    return Parameter(group=Group(title, sort_key=order))


_SOURCE = _group("Source (one of --bootstrap-servers and --records)")
_ANOMALIES = _group("Anomalies")
_EXPECTATIONS = _group("Expectations")
_WINDOW = _group("What to show")
_QUERY = _group("What to run (one of --query, --file and --serve)")
_UPKEEP = _group("What to keep")
_STEPS = _group("Steps")
_FILES = _group("Where to (one of --duckdb, --parquet, --offsets and --script)")
_OFFSETS = _group("Which offsets or groups")
_EVERY = _group("Every job", 1)


# The parts. The text below an option is its help.


class Part:
    """Options that belong together."""

    def check(self) -> None:
        """Refuse values that cannot be meant, with a ValueError that says what to do."""


@dataclass(frozen=True, kw_only=True)
class Common(Part):
    """What every job has: its options, and what it is like."""

    # It does something for all clusters, also where none has the default name.
    is_for_all: ClassVar[bool] = False
    brings_clusters: ClassVar[bool] = False  # it may bring one that the lakehouse does not know
    needs_tables: ClassVar[bool] = False  # it has nothing to do where nothing was ever read
    has_tasks: ClassVar[bool] = False  # its work is done by Python in Spark's tasks
    is_reader: ClassVar[bool] = False  # it writes no table
    # It does nothing else, so that a reader who has seen enough has all there is.
    only_prints: ClassVar[bool] = False

    lakehouse: Annotated[str, _EVERY] = "./lakehouse"
    """Folder of the Delta tables: a path, s3a://, abfss://, gs:// or hdfs://."""
    cluster: Annotated[str, _EVERY] = _DEFAULT_CLUSTER
    """Name of the Kafka cluster; one lakehouse holds many."""
    config: Annotated[str | None, _EVERY] = None
    """TOML file with any of these options by their long names, and Spark properties in [conf]."""
    conf: Annotated[tuple[str, ...], _EVERY, Parameter(show_default=False)] = ()
    """Spark property, as KEY=VALUE; give it again for another one."""
    master: Annotated[str | None, _EVERY] = None
    """Spark master to submit to (default: this machine, or what SPARK_HOME says)."""
    json: Annotated[bool, _EVERY] = False
    """Print a JSON summary as the last line of stdout."""
    verbose: Annotated[bool, _EVERY] = False
    """Show tracebacks."""

    @property
    def spark_conf(self) -> dict[str, str]:
        """The Spark properties of the user; of several values the last one."""
        return dict(_pair(text) for text in self.conf)

    @property
    def clusters(self) -> list[str] | None:
        """The clusters whose rows are asked for; None stands for all."""
        return None if self.cluster == EVERY_CLUSTER else [self.cluster]

    def check(self) -> None:
        """Refuse values that are empty, and names and locations that are none."""
        for field in fields(self):
            if getattr(self, field.name) == "":
                option = field.name.replace("_", "-")
                raise ValueError(f"--{option} is empty: give a value, or leave it out")
        is_every = self.cluster == EVERY_CLUSTER == type(self).cluster
        if not is_every and not re.fullmatch(_CLUSTER_NAME, self.cluster):
            raise ValueError(
                f"--cluster {self.cluster!r}: use up to 100 letters, digits, dots, dashes and "
                "underscores, a letter or digit first"
            )
        for text in self.conf:
            _pair(text)
        _check_location("--lakehouse", self.lakehouse)
        root = local_path(self.lakehouse)
        if root is not None and Path(root).exists() and not Path(root).is_dir():
            raise ValueError(f"--lakehouse {self.lakehouse}: is a file; name a folder")


@dataclass(frozen=True, kw_only=True)
class Source(Part):
    """Where records come from: a cluster, or files; one of them, unless a job needs none."""

    needs_source: ClassVar[bool] = True

    bootstrap_servers: Annotated[str | None, _SOURCE] = None
    """The live cluster: some of its brokers, as HOST:PORT,HOST:PORT."""
    kafka_config: Annotated[str | None, _SOURCE] = None
    """File of Kafka client properties (SASL, TLS); ${env:NAME} is an environment variable."""
    isolation_level: Annotated[Literal["read_committed", "read_uncommitted"], _SOURCE] = (
        "read_committed"
    )
    """read_uncommitted also reads commits of transactions that were aborted."""
    topic: Annotated[str, _SOURCE] = "__consumer_offsets"
    """The topic to read, on the cluster or of the files."""
    records: Annotated[str | None, _SOURCE] = None
    """Parquet file or folder with columns topic, partition, offset, timestamp, timestampType, key,
    value."""

    def check(self) -> None:
        """Refuse what is no source, or none where one is needed."""
        _check_one_source(self, is_needed=self.needs_source)
        if self.records is not None:
            _check_location("--records", self.records)
        if self.bootstrap_servers is None:
            if self.kafka_config is not None:
                raise ValueError("--kafka-config goes with --bootstrap-servers, not with --records")
            return
        for server in self.bootstrap_servers.split(","):
            found = re.fullmatch(r"\s*\S+:(\d{1,5})\s*", server)
            if found is None:
                raise ValueError(f"--bootstrap-servers: {server!r} is not of the form HOST:PORT")
            if not 0 < int(found[1]) < _PORTS:
                raise ValueError(f"--bootstrap-servers: {found[1]} is no port")
        if not _is_readable(self.kafka_config):
            raise ValueError(f"--kafka-config {self.kafka_config}: no such file, or not readable")


@dataclass(frozen=True, kw_only=True)
class Clients(Part):
    """How clients are named in silver and gold."""

    hash_clients: bool = False
    """Put keyed hashes instead of client ids and hosts in silver and gold; the key is in the
    environment variable GROUPLEDGER_HASH_KEY."""

    @property
    def hash_key(self) -> str | None:
        """The key of the hashes that stand for clients; None if their names are kept."""
        return os.environ.get(HASH_KEY) if self.hash_clients else None

    def check(self) -> None:
        """Refuse hashes without a key."""
        if self.hash_clients and len(self.hash_key or "") < _LEAST_HASH_KEY:
            raise ValueError(
                f"--hash-clients: set the environment variable {HASH_KEY} to a secret of "
                f"{_LEAST_HASH_KEY} characters or more, the same in every run"
            )


@dataclass(frozen=True, kw_only=True)
class Groups(Part):
    """Where groups are in the topic."""

    placement: Literal["kafka", "redpanda"] | None = None
    """Whose brokers chose the partition of each group (default: whoever explains where most groups
    are)."""


@dataclass(frozen=True, kw_only=True)
class Anomalies(Part):
    """What counts as an anomaly, and who hears of it."""

    thresholds: Annotated[str | None, _ANOMALIES] = None
    """TOML file with other thresholds, see docs/anomalies.md."""
    notify: Annotated[str | None, _ANOMALIES] = None
    """Address that anomalies and their ends are posted to; ${env:NAME} is an environment
    variable."""
    notify_severity: Annotated[Literal["info", "warning", "critical"], _ANOMALIES] = "warning"
    """The least severity that is posted."""
    notify_format: Annotated[
        Literal["json", "slack", "teams", "pagerduty", "alertmanager"] | None, _ANOMALIES
    ] = None
    """The shape of what is posted (default: what the address tells, else json)."""
    notify_key: Annotated[str | None, _ANOMALIES] = None
    """PagerDuty's routing key, as ${env:NAME}: an environment variable."""
    notify_dry_run: Annotated[bool, _ANOMALIES] = False
    """Print what would be posted, a line of JSON for each message, and post nothing."""
    report_url: Annotated[str | None, _ANOMALIES] = None
    """Where people open the report: messages link to it."""

    @property
    def notify_routing_key(self) -> str | None:
        """PagerDuty's key itself.

        Raises:
            ValueError: An environment variable that it names is not set.
        """
        return None if self.notify_key is None else _with_environment(self.notify_key)

    @property
    def notify_shape(self) -> str:
        """The shape of what is posted."""
        from reporting.alerts import guessed  # noqa: PLC0415 - help comes without it

        return self.notify_format or guessed(self.notify_url or "")

    @property
    def notify_url(self) -> str | None:
        """The address to post to, with its secrets.

        Raises:
            ValueError: An environment variable that it names is not set.
        """
        return None if self.notify is None else _with_environment(self.notify)

    def check(self) -> None:
        """Refuse thresholds that are none, and what is no address."""
        if self.thresholds is not None:
            _check_thresholds(self.thresholds)
        if self.notify is not None and not re.fullmatch(r"https?://\S+", self.notify_url or ""):
            raise ValueError("--notify: give an http:// or https:// address")
        if self.report_url is not None and not re.fullmatch(r"https?://\S{1,400}", self.report_url):
            raise ValueError(
                "--report-url: give an http:// or https:// address of up to 400 characters"
            )
        is_pagerduty = self.notify_shape == "pagerduty"
        if self.notify is not None and is_pagerduty and not self.notify_routing_key:
            raise ValueError(
                "--notify: PagerDuty needs its routing key: --notify-key '${env:NAME}'"
            )
        if self.notify_key is not None and not is_pagerduty:
            raise ValueError("--notify-key goes with --notify-format pagerduty")


@dataclass(frozen=True, kw_only=True)
class Output(Common):
    """Where the report goes."""

    output: str | None = None
    """HTML file that the report goes to: path or URI (default: report.html in the lakehouse)."""


@dataclass(frozen=True, kw_only=True)
class Expectations(Part):
    """How tables are held to what is expected of them."""

    full: Annotated[bool, _EXPECTATIONS] = False
    """Look at all rows, not at the new ones alone."""
    docs: Annotated[str | None, _EXPECTATIONS] = None
    """Folder that great-expectations' Data Docs also go to, as pages."""
    strict: Annotated[bool, _EXPECTATIONS] = False
    """Exit status 3 if a critical expectation fails (validate does so anyway)."""


@dataclass(frozen=True, kw_only=True)
class Times(Part):
    """From when, and until when."""

    since: Annotated[str | None, _WINDOW] = None
    """From when: 02:10, 2026-11-21 02:10, 2026-11-21T02:10:00Z or "2h ago"; explain begins an hour
    before the end without it."""
    until: Annotated[str | None, _WINDOW] = None
    """Until when (default: the newest record)."""
    timezone: Annotated[str, _WINDOW] = "UTC"
    """Zone of the times that are given and printed, such as Europe/Berlin, or local."""

    @property
    def span(self) -> tuple[int | None, int | None]:
        """From when and until when, in epoch milliseconds; None where it is not said.

        Raises:
            ValueError: What is given is no time or no zone.
        """
        now = dt.datetime.now(dt.timezone.utc)
        since, until = (times.parsed(at, now, self.timezone) for at in (self.since, self.until))
        is_clock = self.until is not None and times.is_clock(self.until)
        if is_clock and since is not None and until is not None and until <= since:
            until += times.DAY_MS  # the first such time after the start
        return since, until

    def check(self) -> None:
        """Refuse what is no time or zone, and an end before its start."""
        since, until = self.span
        if since is not None and until is not None and since >= until:
            raise ValueError(f"--since {self.since} is not before --until {self.until}")


@dataclass(frozen=True, kw_only=True)
class Selected(Times):
    """What a list or a page is narrowed to."""

    group: Annotated[str | None, _WINDOW] = None
    """Show groups whose whole ids match this regular expression, as Java has them."""

    @property
    def is_narrowed(self) -> bool:
        """Whether anything is left out."""
        return any(text is not None for text in (self.group, self.since, self.until))


@dataclass(frozen=True, kw_only=True)
class Window(Times):
    """The group and the time to explain."""

    group: Annotated[str | None, _WINDOW] = None
    """The consumer group; always needed."""
    partition: Annotated[str | None, _WINDOW] = None
    """Owners and offsets of this partition alone, as TOPIC:NUMBER."""
    html: Annotated[str | None, _WINDOW] = None
    """Also write the report's page of this group and time to this file."""

    def check(self) -> None:
        """Refuse a window without a group, and what is no partition."""
        if self.group is None:
            raise ValueError("explain: name the group with --group ID")
        if self.partition is not None and not re.fullmatch(r".+:\d{1,9}", self.partition):
            raise ValueError(f"--partition {self.partition!r} is not of the form TOPIC:NUMBER")


STEPS = ("ingest", "decode", "history", "lag", "anomalies", "validate", "report")
"""The steps of a pipeline, in their order."""


def _by_commas(_: Any, tokens: Sequence[Token]) -> tuple[str, ...]:  # noqa: ANN401 - any type
    names = (name.strip() for token in tokens for name in token.value.split(","))
    return tuple(name for name in names if name)


@dataclass(frozen=True, kw_only=True)
class Steps(Part):
    """What a pipeline does."""

    only: Annotated[tuple[str, ...], _STEPS, Parameter(converter=_by_commas)] = ()
    """Do only these steps, separated by commas: ingest, decode, history, lag, anomalies, validate,
    report."""
    skip: Annotated[tuple[str, ...], _STEPS, Parameter(converter=_by_commas)] = ()
    """Leave these out; a later run does what is left, with what is new then."""
    dry_run: Annotated[bool, _STEPS] = False
    """Write nothing, print what an ingest would read: partitions, offsets, records."""
    every: Annotated[str | None, _STEPS] = None
    """Begin a run so often, as 15m or 1h, until a signal ends it. A run that fails says so, and the
    next one goes on."""

    @property
    def every_s(self) -> int | None:
        """Seconds from the start of a run to that of the next one; None if there is none."""
        found = re.fullmatch(r"([1-9]\d{0,5})([smh])", self.every or "")
        return None if found is None else int(found[1]) * _SECONDS[found[2]]

    @property
    def steps(self) -> list[str]:
        """The steps to do, in their order."""
        return [name for name in STEPS if name in (self.only or STEPS) and name not in self.skip]

    def check(self) -> None:
        """Refuse steps that there are not, and to do nothing."""
        for name in (*self.only, *self.skip):
            if name not in STEPS:
                raise ValueError(
                    f"there is no step {name!r} to do or to skip; the steps are {', '.join(STEPS)}"
                )
        if not self.steps:
            raise ValueError("--only and --skip leave no step to do")
        if self.every is not None and self.every_s is None:
            raise ValueError(f"--every {self.every!r}: give a time such as 90s, 15m or 1h")
        if self.every is not None and self.dry_run:
            raise ValueError("--every goes on with what was written, --dry-run writes nothing")


@dataclass(frozen=True, kw_only=True)
class Metrics(Part):
    """Figures for a monitoring system."""

    metrics: str | None = None
    """File of Prometheus metrics for node_exporter's textfile collector, FILE.prom."""
    metrics_partitions: bool = False
    """Also write the lag of each group's partitions to it: a line for each, which may be many."""

    def check(self) -> None:
        """Refuse a name that node_exporter does not read."""
        if self.metrics is not None and not self.metrics.endswith(".prom"):
            raise ValueError(f"--metrics {self.metrics}: node_exporter reads files *.prom alone")
        if self.metrics_partitions and self.metrics is None:
            raise ValueError("--metrics-partitions goes with --metrics FILE.prom")


@dataclass(frozen=True, kw_only=True)
class Upkeep(Part):
    """What is kept, and how long."""

    vacuum_hours: Annotated[int, _UPKEEP] = 168
    """Delete files that no version of these hours has."""
    retain_lag: Annotated[int | None, _UPKEEP] = None
    """Delete rows of gold.lag of the cluster that are older than these days (default: never)."""
    retain_results: Annotated[int | None, _UPKEEP] = None
    """Delete rows of dq.results of the cluster that are older than these days (default: never)."""
    dry_run: Annotated[bool, _UPKEEP] = False
    """Change nothing, print what there is to do."""

    def check(self) -> None:
        """Refuse to delete what running jobs need."""
        if self.vacuum_hours < _LEAST_VACUUM_HOURS:
            raise ValueError(
                f"--vacuum-hours: at least {_LEAST_VACUUM_HOURS}; running jobs need what they read"
            )
        for name, days in (("lag", self.retain_lag), ("results", self.retain_results)):
            if days is not None and days < 1:
                raise ValueError(f"--retain-{name}: give a number of days, 1 or more")


@dataclass(frozen=True, kw_only=True)
class Query(Part):
    """The SQL to run."""

    query: Annotated[str | None, _QUERY] = None
    """One statement, in quotes."""
    file: Annotated[str | None, _QUERY] = None
    """File of statements, each ended by a semicolon."""
    format: Annotated[Literal["table", "json", "csv", "markdown"], _QUERY] = "table"
    """How rows are printed; csv as RFC 4180 has it; --json does the same as json, with a summary
    behind."""
    limit: Annotated[int | None, _QUERY] = None
    """Print so many rows at most (default: 1,000 in a table on a terminal, else all)."""
    write: Annotated[bool, _QUERY] = False
    """Also run statements that change tables; without it they are refused."""
    serve: Annotated[bool, _QUERY] = False
    """Listen for JDBC and ODBC clients (Spark Thrift Server) until interrupted."""
    host: Annotated[str, _QUERY] = "127.0.0.1"
    """Address to listen on; whoever reaches it may read all tables, see docs/sql.md."""
    port: Annotated[int, _QUERY] = 10000
    """Port to listen on; 0 for any."""

    def check(self) -> None:
        """Refuse what is not one thing to run."""
        if (self.query is not None) + (self.file is not None) + self.serve != 1:
            raise ValueError("sql: give exactly one of --query SQL, --file FILE and --serve")
        if self.limit is not None and not 1 <= self.limit < _MOST_ROWS:
            raise ValueError(
                f"--limit: give a number of rows, 1 to {_MOST_ROWS - 1:,}; leave it out for all"
            )
        if not 0 <= self.port < _PORTS:
            raise ValueError(f"--port {self.port} is no port")
        if not _is_readable(self.file):
            raise ValueError(f"--file {self.file}: no such file, or not readable")


@dataclass(frozen=True, kw_only=True)
class Files(Part):
    """Where an export goes."""

    duckdb: Annotated[str | None, _FILES] = None
    """DuckDB file to write, which replaces the last export as a whole."""
    parquet: Annotated[str | None, _FILES] = None
    """Folder to write, with a folder of Parquet files for each table and view."""
    offsets: Annotated[str | None, _FILES] = None
    """CSV file of offsets that groups had committed by a time, for --reset-offsets --from-file of
    kafka-consumer-groups (default with --offsets-at: offsets.csv)."""
    script: Annotated[str | None, _FILES] = None
    """Shell script that deletes groups, by Kafka's own tools (default with --unused-since:
    unused-groups.sh)."""
    offsets_at: Annotated[str | None, _OFFSETS] = None
    """By when: 02:10, 2026-11-21 02:10, 2026-11-21T02:10:00Z or "2h ago"."""
    unused_since: Annotated[str | None, _OFFSETS] = None
    """Groups that nobody was in and that committed nothing since a time, such as "30d ago"."""
    group: Annotated[str | None, _OFFSETS] = None
    """The group, or a regular expression, as Java has them, that matches whole ids."""
    topic: Annotated[str, _OFFSETS] = EVERY_TOPIC
    """Offsets of this topic alone; * for all."""
    timezone: Annotated[str, _OFFSETS] = "UTC"
    """Zone of the time, such as Europe/Berlin, or local."""

    @property
    def moment(self) -> int | None:
        """The time of the offsets, in epoch milliseconds; None if none is given.

        Raises:
            ValueError: What is given is no time or no zone.
        """
        return times.parsed(self.offsets_at, dt.datetime.now(dt.timezone.utc), self.timezone)

    @property
    def unused_moment(self) -> int | None:
        """Since when groups are not used, likewise."""
        return times.parsed(self.unused_since, dt.datetime.now(dt.timezone.utc), self.timezone)

    def check(self) -> None:
        """Refuse what is not one target, and offsets of no time or no group."""
        is_offsets = self.offsets is not None or self.moment is not None
        is_script = self.script is not None or self.unused_moment is not None
        given = (self.duckdb is not None, self.parquet is not None, is_offsets, is_script)
        if sum(given) != 1:
            raise ValueError(
                "export: give exactly one of --duckdb FILE, --parquet FOLDER, --offsets-at TIME and"
                " --unused-since TIME"
            )
        if is_offsets and self.moment is None:
            raise ValueError("--offsets: say of when with --offsets-at TIME")
        if is_offsets and self.group is None:
            raise ValueError("--offsets-at: name the group with --group ID")
        if is_script and self.unused_moment is None:
            raise ValueError("--script: say since when with --unused-since TIME")


@dataclass(frozen=True, kw_only=True)
class Options(
    Query,
    Upkeep,
    Steps,
    Metrics,
    Window,
    Selected,
    Expectations,
    Output,
    Anomalies,
    Groups,
    Clients,
    Source,
    Files,  # whose topic is another one
    Common,
):
    """What a job was asked to do: the options of all parts; those it does not have are defaults."""

    job: str

    @property
    def like(self) -> type[Common]:
        """The job's own class, which says what the job is like."""
        return JOBS[self.job]


# The jobs. The first line of a class is the job's help; examples follow.


@dataclass(frozen=True, kw_only=True)
class Demo(Expectations, Output, Anomalies, Common):
    """Run the pipeline on a bundled recording of a real broker's topic.

    ```console
    ./spark-submit.sh demo
    ```
    """

    brings_clusters = True
    has_tasks = True

    lakehouse: Annotated[str, _EVERY] = "./demo-lakehouse"
    """Folder of the Delta tables."""


@dataclass(frozen=True, kw_only=True)
class Ingest(Source, Common):
    """Read what is new from a cluster or from Parquet files into bronze.

    ```console
    ./spark-submit.sh ingest --bootstrap-servers broker1:9092 --lakehouse /data/groups
    ./spark-submit.sh ingest --records backup.parquet --lakehouse /data/groups --cluster staging
    ```
    """

    brings_clusters = True
    has_tasks = True


@dataclass(frozen=True, kw_only=True)
class Decode(Clients, Common):
    """Decode what is new in bronze into silver.

    ```console
    ./spark-submit.sh decode --lakehouse /data/groups
    ```
    """

    has_tasks = True


@dataclass(frozen=True, kw_only=True)
class History(Groups, Common):
    """Rebuild the history of each group: silver into gold.

    ```console
    ./spark-submit.sh history --lakehouse /data/groups
    ```
    """

    has_tasks = True


@dataclass(frozen=True, kw_only=True)
class Lag(Source, Common):
    """Ask the cluster how far each group is behind, and judge it: gold.lag.

    ```console
    ./spark-submit.sh lag --bootstrap-servers broker1:9092 --lakehouse /data/groups
    ```
    """

    needs_source = False  # without one it does what can be done without
    has_tasks = True


@dataclass(frozen=True, kw_only=True)
class Detect(Selected, Anomalies, Common):
    """Find what is wrong: gold and silver into gold.anomalies, incidents and group_health.

    ```console
    ./spark-submit.sh anomalies --lakehouse /data/groups --thresholds thresholds.toml
    ```
    """

    has_tasks = True


@dataclass(frozen=True, kw_only=True)
class Validate(Expectations, Common):
    """Hold the tables to what is expected of them: dq.results.

    ```console
    ./spark-submit.sh validate --lakehouse /data/groups --full --docs ./data-docs
    ```
    """

    needs_tables = True


@dataclass(frozen=True, kw_only=True)
class Report(Selected, Output):
    """Write one HTML file with charts of how the groups are and what they did.

    ```console
    ./spark-submit.sh report --lakehouse /data/groups --output groups.html
    ```
    """

    needs_tables = True
    is_reader = True

    def check(self) -> None:
        """Refuse to write nowhere, and a part of the page where all look for the whole."""
        if self.is_narrowed and self.output is None:
            raise ValueError("report: a page of some groups or times needs --output FILE")


@dataclass(frozen=True, kw_only=True)
class Explain(Window, Common):
    """Print what one group did between two times, why, and who owned what.

    ```console
    ./spark-submit.sh explain --lakehouse /data/groups --group orders --since 02:10 --until 02:40
    ./spark-submit.sh explain --lakehouse /data/groups --group orders --partition clicks:7
    ```
    """

    needs_tables = True
    is_reader = True
    only_prints = True


@dataclass(frozen=True, kw_only=True)
class Maintain(Upkeep, Common):
    """Put small files together, delete those that no reader needs.

    ```console
    ./spark-submit.sh maintain --lakehouse /data/groups --dry-run
    ```
    """

    is_for_all = True


@dataclass(frozen=True, kw_only=True)
class Sql(Query, Common):
    """Run SQL over the tables and views, and print what it gives.

    ```console
    ./spark-submit.sh sql --lakehouse /data/groups --query "SELECT * FROM gold.group_health"
    ./spark-submit.sh sql --lakehouse /data/groups --serve
    ```
    """

    is_for_all = True
    needs_tables = True
    is_reader = True
    only_prints = True

    cluster: Annotated[str, _EVERY] = EVERY_CLUSTER
    """Show rows of this Kafka cluster alone; * for all."""


@dataclass(frozen=True, kw_only=True)
class Export(Files, Common):
    """Copy gold and its views to files for tools without Spark, offsets to go back to, a clean-up.

    ```console
    ./spark-submit.sh export --lakehouse /data/groups --duckdb groups.duckdb
    ./spark-submit.sh export --lakehouse /data/groups --offsets-at "2026-11-21 02:10" --group orders
    ./spark-submit.sh export --lakehouse /data/groups --unused-since "30d ago"
    ```
    """

    is_for_all = True
    needs_tables = True
    is_reader = True

    cluster: Annotated[str, _EVERY] = EVERY_CLUSTER
    """Copy rows of this Kafka cluster alone; * for all."""


@dataclass(frozen=True, kw_only=True)
class Check(Source, Common):
    """Say what a pipeline would lack: brokers, rights, a lakehouse; writes nothing.

    ```console
    ./spark-submit.sh check --bootstrap-servers broker1:9092 --lakehouse /data/groups
    ```
    """

    needs_source = False  # without one the rest is looked at


@dataclass(frozen=True, kw_only=True)
class Pipeline(Steps, Metrics, Expectations, Output, Anomalies, Groups, Clients, Source, Common):
    """All of ingest, decode, history, lag, anomalies, validate, report: to be scheduled.

    ```console
    ./spark-submit.sh pipeline --bootstrap-servers broker1:9092 --lakehouse /data/groups
    ./spark-submit.sh pipeline --records backup.parquet --lakehouse /data/groups --cluster staging
    ```
    """

    needs_source = False  # an ingest alone does
    brings_clusters = True
    has_tasks = True

    def check(self) -> None:
        """Refuse an ingest without a source, and to show what one would read if there is none."""
        _check_one_source(self, is_needed="ingest" in self.steps)
        if self.dry_run and "ingest" not in self.steps:
            raise ValueError("--dry-run is of an ingest, which --only or --skip leave out")


JOBS: dict[str, type[Common]] = {
    "demo": Demo,
    "ingest": Ingest,
    "decode": Decode,
    "history": History,
    "lag": Lag,
    "anomalies": Detect,
    "validate": Validate,
    "report": Report,
    "explain": Explain,
    "maintain": Maintain,
    "sql": Sql,
    "export": Export,
    "check": Check,
    "pipeline": Pipeline,
}
"""The options of each job, by its name."""


def report_path(options: Output) -> str:
    """Return where the report goes: a path of this machine, or a URI of a file elsewhere."""
    if options.output is not None:
        return options.output
    root = local_path(options.lakehouse) or options.lakehouse
    # A lakehouse holds many clusters.
    name = "report" if options.cluster == _DEFAULT_CLUSTER else f"report-{options.cluster}"
    return f"{root.rstrip('/')}/{name}.html"


def local_path(text: str) -> str | None:
    """Returns the path on this machine that a path or URI names; None if it is elsewhere."""
    if text.startswith("file:"):
        return text.removeprefix("file:")
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text) else text


def is_one_process(master: str) -> bool:
    """Returns whether a Spark master stands for one process on this machine."""
    # A local-cluster has executors in processes of their own, as Spark's own tests do.
    return master.startswith("local") and not master.startswith("local-cluster")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        shown = re.match(r"[\w.-]*", text)  # behind it there may be a secret
        raise ValueError(f"--conf {shown and shown[0]}… is not of the form KEY=VALUE")
    return key, value


def _check_one_source(options: Source, *, is_needed: bool) -> None:
    given = sum(source is not None for source in (options.bootstrap_servers, options.records))
    if given > 1 or (is_needed and not given):
        raise ValueError("give exactly one source: --bootstrap-servers HOST:PORT or --records PATH")


def _check_location(name: str, location: str) -> None:
    if not location.strip():
        raise ValueError(f"{name} is empty: name a folder or a URI")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:(?!/)", location):
        raise ValueError(
            f"{name} {location}: is no URI, which has a slash behind the colon; a folder of this "
            "machine with a colon in its name needs its whole path (/data/a:b)"
        )


def _is_readable(path: str | None) -> bool:
    return path is None or os.access(path, os.R_OK)


def _check_thresholds(path: str) -> None:
    # Help comes without it.
    from detectors.thresholds import ThresholdsError, read_thresholds  # noqa: PLC0415

    try:
        read_thresholds(path)
    except ThresholdsError as error:
        raise ValueError(f"--thresholds {path}: {error}") from error


def _with_environment(text: str) -> str:
    try:
        return with_environment(text)
    except KeyError as error:
        name = error.args[0]
        raise ValueError(
            f"--notify, --notify-key: environment variable {name} is not set"
        ) from None
