"""The options of every job: command line beats file beats defaults.

Nothing here needs Spark or a third-party package, so that help and usage errors come at once.
"""

from __future__ import annotations

import argparse
import datetime as dt
import difflib
import os
import re
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

JOBS = {
    "demo": "run the pipeline on a bundled recording of a real broker's topic",
    "ingest": "read what is new from a cluster or from Parquet files into bronze",
    "decode": "decode what is new in bronze into silver",
    "history": "rebuild the history of each group: silver into gold",
    "lag": "ask the cluster how far each group is behind, and judge it: gold.lag",
    "anomalies": "find what is wrong: gold and silver into gold.anomalies and gold.group_health",
    "validate": "hold the tables to what is expected of them: dq.results",
    "report": "write one HTML file with charts of how the groups are and what they did",
    "explain": "print what one group did between two times, why, and who owned what",
    "maintain": "put small files together, delete those that no reader needs",
    "sql": "run SQL over the tables and views, and print what it gives",
    "pipeline": "all of ingest, decode, history, lag, anomalies, validate, report: to be scheduled",
}
_WITH_SOURCE = {"ingest", "lag", "pipeline"}
# These do without a source what can be done without.
_SOURCE_IS_OPTIONAL = {"lag"}
_WITH_CLIENTS = {"decode", "pipeline"}
_WITH_THRESHOLDS = {"anomalies", "pipeline", "demo"}
_WITH_REPORT = {"report", "pipeline", "demo"}
_WITH_EXPECTATIONS = {"validate", "pipeline", "demo"}
_SEVERITIES = ("info", "warning", "critical")
_PORTS = 2**16
_MOST_ROWS = 2**31 - 1
_FORMATS = ("table", "json", "csv", "markdown")
_NOTIFY_FORMATS = ("json", "slack", "teams", "pagerduty", "alertmanager")
_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
_DEFAULTS = {"demo": {"lakehouse": "./demo-lakehouse"}}
_TOML_TYPES = {bool: "boolean", int: "whole number", str: "string"}
# A run that takes longer than this would lose the files that it has not committed.
_LEAST_VACUUM_HOURS = 24
HASH_KEY = "GROUPLEDGER_HASH_KEY"
"""The environment variable with the key of --hash-clients."""
_LEAST_HASH_KEY = 16
_CLUSTER_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"

_EXAMPLES = {
    "demo": ("demo",),
    "ingest": (
        "ingest --bootstrap-servers broker1:9092 --lakehouse /data/groups",
        "ingest --records backup.parquet --lakehouse /data/groups --cluster staging",
    ),
    "decode": ("decode --lakehouse /data/groups",),
    "history": ("history --lakehouse /data/groups",),
    "lag": ("lag --bootstrap-servers broker1:9092 --lakehouse /data/groups",),
    "anomalies": ("anomalies --lakehouse /data/groups --thresholds thresholds.toml",),
    "validate": ("validate --lakehouse /data/groups --full --docs ./data-docs",),
    "report": ("report --lakehouse /data/groups --output groups.html",),
    "explain": (
        "explain --lakehouse /data/groups --group orders --since 02:10 --until 02:40",
        'explain --lakehouse /data/groups --group orders --since "2h ago" --partition clicks:7',
    ),
    "maintain": ("maintain --lakehouse /data/groups --dry-run",),
    "sql": (
        'sql --lakehouse /data/groups --query "SELECT * FROM gold.group_health"',
        "sql --lakehouse /data/groups --serve",
    ),
    "pipeline": (
        "pipeline --bootstrap-servers broker1:9092 --lakehouse /data/groups",
        "pipeline --records backup.parquet --lakehouse /data/groups --cluster staging",
    ),
}
_EPILOG = """\
examples:
{examples}

exit status: 0 done, 1 failed with nothing half-written, 2 wrong usage, 3 an expectation failed
(validate; pipeline with --strict)
"""


@dataclass(frozen=True)
class Options:
    """What a job was asked to do.

    Attributes:
        job: name of the job.
        lakehouse: folder or URI of the lakehouse.
        cluster: name of the Kafka cluster.
        master: Spark master to submit to; None for this machine or what SPARK_HOME says.
        spark_conf: Spark properties the user set.
        json: print a JSON summary as the last line.
        verbose: show tracebacks.
        bootstrap_servers: brokers to ask first; None if the source is files.
        kafka_config: file of Kafka client properties.
        isolation_level: read_committed or read_uncommitted.
        records: Parquet file or folder; None if the source is a cluster.
        topic: the topic to read.
        hash_clients: hashes stand for ids and hosts of clients in silver and gold.
        group: the group to explain.
        since: start of the time to explain; None for an hour before its end.
        until: end of it; None for the newest record.
        partition: the partition to explain alone, as TOPIC:NUMBER; None for all.
        timezone: zone of times that are given and printed.
        query: SQL to run.
        file: file with SQL statements to run, each ended by a semicolon.
        format: how rows are printed: table, json, csv or markdown.
        limit: rows that are printed at most; None for 1,000 on a terminal, and for all elsewhere.
        serve: let BI tools ask by JDBC or ODBC, until interrupted.
        host: address that is listened on for them.
        port: port that is listened on; 0 for any.
        thresholds: TOML file with thresholds of the detectors; None for ours alone.
        output: file to write the report to; None for one in a lakehouse on this machine.
        notify: address to post anomalies to, with ${env:NAME} for what is secret; None for none.
        notify_severity: the least severity that is posted.
        notify_format: the shape of what is posted; None for what the address asks for.
        notify_key: PagerDuty's routing key, with ${env:NAME} for what is secret; None for none.
        notify_dry_run: print what would be posted, and post nothing.
        report_url: where people open the report; None if messages have no link to it.
        full: hold all rows to what is expected, not the new ones alone.
        docs: folder to write Data Docs to; None for none.
        strict: end with 3 if an expectation fails, in any job.
        vacuum_hours: files that no version of so many hours has are deleted.
        retain_lag: days that rows of gold.lag are kept; None for ever.
        retain_results: days that rows of dq.results are kept; None for ever.
        dry_run: change nothing, print what there is to do.
    """

    job: str
    lakehouse: str = "./lakehouse"
    cluster: str = "default"
    master: str | None = None
    spark_conf: dict[str, str] = field(default_factory=dict)
    json: bool = False
    verbose: bool = False
    bootstrap_servers: str | None = None
    kafka_config: str | None = None
    isolation_level: str = "read_committed"
    records: str | None = None
    topic: str = "__consumer_offsets"
    hash_clients: bool = False
    group: str | None = None
    since: str | None = None
    until: str | None = None
    partition: str | None = None
    timezone: str = "UTC"
    query: str | None = None
    file: str | None = None
    format: str = "table"
    limit: int | None = None
    serve: bool = False
    host: str = "127.0.0.1"
    port: str = "10000"
    thresholds: str | None = None
    output: str | None = None
    notify: str | None = None
    notify_severity: str = "warning"
    notify_format: str | None = None
    notify_key: str | None = None
    notify_dry_run: bool = False
    report_url: str | None = None
    full: bool = False
    docs: str | None = None
    strict: bool = False
    vacuum_hours: int = 168
    retain_lag: int | None = None
    retain_results: int | None = None
    dry_run: bool = False

    @property
    def notify_url(self) -> str | None:
        """The address to post to, with its secrets."""
        return None if self.notify is None else _with_environment(self.notify)

    @property
    def notify_routing_key(self) -> str | None:
        """PagerDuty's key itself."""
        return None if self.notify_key is None else _with_environment(self.notify_key)

    @property
    def notify_shape(self) -> str:
        """The shape of what is posted."""
        from reporting.alerts import guessed  # noqa: PLC0415 - help comes without it

        return self.notify_format or guessed(self.notify_url or "")

    @property
    def hash_key(self) -> str | None:
        """The key of the hashes that stand for clients; None if their names are kept."""
        return os.environ.get(HASH_KEY) if self.hash_clients else None


def report_path(options: Options) -> str | None:
    """Tell where the report goes; None if the lakehouse is elsewhere and no file was named."""
    if options.output is not None:
        return options.output
    root = local_path(options.lakehouse)
    if root is None:
        return None
    # A lakehouse holds many clusters.
    name = "report" if options.cluster == Options.cluster else f"report-{options.cluster}"
    return f"{root.rstrip('/')}/{name}.html"


def local_path(text: str) -> str | None:
    """Returns the path on this machine that a path or URI names; None if it is elsewhere."""
    if text.startswith("file:"):
        return text.removeprefix("file:")
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text) else text


def parse(argv: list[str]) -> Options:
    """Read a command line: the job, then its options.

    Raises:
        SystemExit: 0 after printing help or the version, 2 after a line that says what is wrong.
    """
    if argv and argv[0] == "--version":
        print(f"groupledger {_version()}")
        raise SystemExit(0)
    if not argv or argv[0] in {"-h", "--help", "help"}:
        _print_overview()
        raise SystemExit(0 if argv else 2)
    job, rest = argv[0], argv[1:]
    if job.startswith("-"):
        _fail(f"the job comes first, then {job}; the jobs are {', '.join(JOBS)}")
    if job not in JOBS:
        _fail(f"unknown job {job!r}{_nearest(job, JOBS)}; the jobs are {', '.join(JOBS)}")
    parser = _parser(job)
    given = vars(parser.parse_args(rest))
    config_file = given.pop("config", None)
    from_file = _from_file(config_file, parser) if config_file else {}
    if "records" in given or "bootstrap_servers" in given:  # the line's source beats the file's
        for name in ("records", "bootstrap_servers", "kafka_config"):
            from_file.pop(name, None)
    spark_conf = from_file.pop("conf", {}) | dict(given.pop("conf", []))
    chosen = _DEFAULTS.get(job, {}) | from_file | given
    for name in ("lakehouse", "records"):
        if str(chosen.get(name)).startswith("file:"):
            # Hadoop takes what is escaped in a URI for the name of another folder.
            chosen[name] = f"file:{unquote(urlsplit(chosen[name]).path)}"
    options = Options(job=job, spark_conf=spark_conf, **chosen)
    _check(options)
    return options


def _version() -> str:
    """Read the version where it is declared; what runs is always a checkout."""
    declared = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    found = re.search(r'^version = "(.+)"$', declared, re.MULTILINE)
    return found.group(1) if found else "unknown"


def _epilog(examples: Iterable[str]) -> str:
    return _EPILOG.format(examples="\n".join(f"  ./spark-submit.sh {e}" for e in examples))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        job = self.prog.split()[-1]
        _, is_unknown, given = message.partition("unrecognized arguments: ")
        if is_unknown and not given.startswith("-") and job == "sql":
            _fail("sql: SQL goes behind --query, in quotes; see --help")
        names = self._option_string_actions if is_unknown else ()
        _fail(f"{job}: {message}{_nearest(given.split(' ')[0], names)}; see --help")


def _parser(job: str) -> _Parser:
    parser = _Parser(
        prog=f"./spark-submit.sh {job}",
        description=f"{JOBS[job][0].upper()}{JOBS[job][1:]}.",
        epilog=_epilog(_EXAMPLES[job]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--lakehouse",
        metavar="PATH_OR_URI",
        help="folder of the Delta tables: a path, s3a://, abfss://, gs:// or hdfs:// "
        f"(default {'./demo-lakehouse' if job == 'demo' else Options.lakehouse})",
    )
    if job != "demo":
        parser.add_argument(
            "--cluster",
            metavar="NAME",
            help="name of the Kafka cluster; one lakehouse holds many (default: default)",
        )
    if job in _WITH_SOURCE:
        _add_source(parser)
    if job in _WITH_CLIENTS:
        parser.add_argument(
            "--hash-clients",
            action="store_true",
            help="put keyed hashes instead of client ids and hosts in silver and gold; the "
            f"key is in the environment variable {HASH_KEY}",
        )
    if job in _WITH_THRESHOLDS:
        _add_thresholds(parser)
    if job in _WITH_REPORT:
        parser.add_argument(
            "--output",
            metavar="FILE.html",
            help="where the report goes (default report.html in a lakehouse on this machine)",
        )
    if job in _WITH_EXPECTATIONS:
        _add_expectations(parser)
    own = {"explain": _add_window, "maintain": _add_upkeep, "sql": _add_query}
    if job in own:
        own[job](parser)
    parser.add_argument("--config", metavar="FILE", help="TOML file with any of these options")
    parser.add_argument(
        "--conf", action="append", type=_pair, metavar="KEY=VALUE", help="Spark property"
    )
    parser.add_argument(
        "--master", metavar="URL", help="Spark master to submit to (default: this machine)"
    )
    as_json = "print a JSON summary as the last line of stdout"
    if job == "sql":
        as_json = "print each row as a line of JSON, and a JSON summary as the last line"
    parser.add_argument("--json", action="store_true", help=as_json)
    parser.add_argument("--verbose", action="store_true", help="show tracebacks")
    return parser


def _add_source(parser: _Parser) -> None:
    source = parser.add_argument_group("source (one of --bootstrap-servers and --records)")
    source.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="the live cluster")
    source.add_argument(
        "--kafka-config",
        metavar="FILE",
        help="Kafka client properties (SASL, TLS); ${env:NAME} stands for an environment variable",
    )
    source.add_argument(
        "--isolation-level",
        choices=_ISOLATION_LEVELS,
        help="read_uncommitted also reads commits of transactions that were aborted "
        "(default read_committed)",
    )
    source.add_argument(
        "--topic",
        metavar="TOPIC",
        help="the topic to read, on the cluster or of the files (default __consumer_offsets)",
    )
    source.add_argument(
        "--records",
        metavar="PATH",
        help="Parquet file or folder with columns topic, partition, offset, timestamp, "
        "timestampType, key, value",
    )


def _add_thresholds(parser: _Parser) -> None:
    what = parser.add_argument_group("anomalies")
    what.add_argument(
        "--thresholds",
        metavar="FILE",
        help="TOML file with other thresholds, see docs/anomalies.md",
    )
    what.add_argument(
        "--notify",
        metavar="URL",
        help="post new and worse anomalies there; ${env:NAME} stands for an environment variable",
    )
    what.add_argument(
        "--notify-severity",
        choices=_SEVERITIES,
        help="the least severity that is posted (default warning)",
    )
    what.add_argument(
        "--notify-format",
        choices=_NOTIFY_FORMATS,
        help="the shape of what is posted (default: what the address tells, else json)",
    )
    what.add_argument(
        "--notify-key",
        metavar="KEY",
        help="PagerDuty's routing key, as ${env:NAME}: an environment variable",
    )
    what.add_argument(
        "--notify-dry-run",
        action="store_true",
        help="print what would be posted, a line of JSON for each message, and post nothing",
    )
    what.add_argument(
        "--report-url",
        metavar="URL",
        help="where people open the report: messages link to it",
    )


def _add_expectations(parser: _Parser) -> None:
    what = parser.add_argument_group("expectations")
    what.add_argument(
        "--full", action="store_true", help="look at all rows, not at the new ones alone"
    )
    what.add_argument(
        "--docs", metavar="FOLDER", help="also write great-expectations' Data Docs there, as pages"
    )
    what.add_argument(
        "--strict",
        action="store_true",
        help="exit status 3 if an expectation fails (validate does so anyway)",
    )


def _add_upkeep(parser: _Parser) -> None:
    what = parser.add_argument_group("what to keep")
    what.add_argument(
        "--vacuum-hours",
        type=int,
        metavar="HOURS",
        help=f"delete files that no version of these hours has (default {Options.vacuum_hours})",
    )
    what.add_argument(
        "--retain-lag",
        type=int,
        metavar="DAYS",
        help="delete older rows of gold.lag of the cluster (default: never)",
    )
    what.add_argument(
        "--retain-results",
        type=int,
        metavar="DAYS",
        help="delete older rows of dq.results of the cluster (default: never)",
    )
    what.add_argument(
        "--dry-run", action="store_true", help="change nothing, print what there is to do"
    )


def _add_window(parser: _Parser) -> None:
    what = parser.add_argument_group("what to explain")
    what.add_argument("--group", metavar="ID", help="the consumer group; always needed")
    times = "02:10, 2026-11-21 02:10, 2026-11-21T02:10:00Z or '2h ago'"
    what.add_argument(
        "--since", metavar="TIME", help=f"from when: {times} (default an hour before the end)"
    )
    what.add_argument("--until", metavar="TIME", help="until when (default the newest record)")
    what.add_argument(
        "--partition", metavar="TOPIC:NUMBER", help="owners and offsets of this partition alone"
    )
    what.add_argument(
        "--timezone",
        metavar="ZONE",
        help="zone of the times that are given and printed, such as Europe/Berlin, or local "
        "(default UTC)",
    )


def _add_query(parser: _Parser) -> None:
    what = parser.add_argument_group("what to run (one of --query, --file and --serve)")
    what.add_argument("--query", metavar="SQL", help="one statement")
    what.add_argument(
        "--file", metavar="FILE", help="file of statements, each ended by a semicolon"
    )
    what.add_argument(
        "--format", choices=_FORMATS, help="how rows are printed (default table); csv as RFC 4180"
    )
    what.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="print N rows at most (default 1,000 in a table on a terminal, else all)",
    )
    what.add_argument(
        "--serve",
        action="store_true",
        help="listen for JDBC and ODBC clients (Spark Thrift Server) until interrupted",
    )
    what.add_argument(
        "--host",
        metavar="ADDRESS",
        help="address to listen on; whoever reaches it may read and write (default 127.0.0.1)",
    )
    what.add_argument("--port", metavar="PORT", help="port to listen on (default 10000)")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    return key, value


def _from_file(name: str, parser: _Parser) -> dict[str, Any]:
    """Read options from a TOML file: the long names, and a table [conf] of Spark properties."""
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        _fail(f"--config {name}: cannot be read: {getattr(error, 'strerror', None) or error}")
    try:
        found = _toml(text)
    except ValueError as error:
        _fail(f"--config {name}: is not TOML: {error}")
    known = {
        action.dest: action
        for action in parser._actions  # noqa: SLF001 - argparse has no public list of its options
        if action.dest not in {"help", "config"}
    }
    every = set(known) | {f.name for f in fields(Options)} - {"job", "spark_conf"}
    merged: dict[str, Any] = {}
    for key, value in found.items():
        dest = key.replace("-", "_")
        if dest not in every:
            _fail(f"--config {name}: unknown option {key!r}")
        action = known.get(dest)
        if action is None:  # a file serves all jobs; this one does not use the option
            continue
        if dest == "conf":
            if not isinstance(value, dict):
                _fail(f"--config {name}: conf has to be a table of Spark properties")
            merged["conf"] = _properties(value)
            continue
        wanted = bool if action.nargs == 0 else int if action.type is int else str
        if type(value) is not wanted:
            _fail(f"--config {name}: {key} has to be a {_TOML_TYPES[wanted]}")
        if action.choices and value not in action.choices:
            _fail(f"--config {name}: {key} has to be one of {', '.join(action.choices)}")
        merged[dest] = value
    return merged


def _properties(table: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return a table's properties; TOML makes tables of dotted keys that are not quoted."""
    found: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= _properties(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _toml(text: str) -> dict[str, Any]:
    from schemas import toml  # noqa: PLC0415 - Python 3.10 needs a package for it

    found: dict[str, Any] = toml.loads(text)
    return found


def _check(options: Options) -> None:
    if not re.fullmatch(_CLUSTER_NAME, options.cluster):
        _fail(
            f"--cluster {options.cluster!r}: use up to 100 letters, digits, dots, dashes and "
            "underscores, a letter or digit first"
        )
    _check_location("--lakehouse", options.lakehouse)
    root = local_path(options.lakehouse)
    if root is not None and Path(root).exists() and not Path(root).is_dir():
        _fail(f"--lakehouse {options.lakehouse}: is a file; name a folder")
    own = {"explain": _check_window, "maintain": _check_upkeep, "sql": _check_query}
    if options.job in own:
        own[options.job](options)
    if options.job in _WITH_SOURCE:
        _check_source(options)
    if options.job == "report" and report_path(options) is None:
        _fail("report: the lakehouse is not on this machine; say where to write: --output FILE")
    if options.thresholds is not None:
        _check_thresholds(options.thresholds)
    if options.hash_clients:
        _check_hash_key(options)
    if options.job in _WITH_THRESHOLDS:
        _check_notify(options)


def _check_notify(options: Options) -> None:
    if options.notify is not None and not re.match(r"https?://\S+$", options.notify_url or ""):
        _fail("--notify: give an http:// or https:// address")
    if options.report_url is not None and not re.match(r"https?://\S{1,400}$", options.report_url):
        _fail("--report-url: give an http:// or https:// address of up to 400 characters")
    is_pagerduty = options.notify_shape == "pagerduty"
    if options.notify is not None and is_pagerduty and not options.notify_routing_key:
        _fail("--notify: PagerDuty needs its routing key: --notify-key '${env:NAME}'")
    if options.notify_key is not None and not is_pagerduty:
        _fail("--notify-key goes with --notify-format pagerduty")


def _check_location(name: str, location: str) -> None:
    if not location.strip():
        _fail(f"{name} is empty: name a folder or a URI")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:(?!/)", location):
        _fail(
            f"{name} {location}: is no URI, which has a slash behind the colon; a folder of this "
            "machine with a colon in its name needs its whole path (/data/a:b)"
        )


def _check_window(options: Options) -> None:
    from jobs.runtime import times  # noqa: PLC0415 - of no other job

    if options.group is None:
        _fail("explain: name the group with --group ID")
    now = dt.datetime.now(dt.timezone.utc)
    try:
        where = times.zone(options.timezone)
        for text in (options.since, options.until):
            times.moment(text or "now", now, where)
    except ValueError as error:
        _fail(f"explain: {error}")
    if options.partition is not None and not re.fullmatch(r".+:\d{1,9}", options.partition):
        _fail(f"--partition {options.partition!r} is not of the form TOPIC:NUMBER")


def _check_upkeep(options: Options) -> None:
    if options.vacuum_hours < _LEAST_VACUUM_HOURS:
        _fail(f"--vacuum-hours: at least {_LEAST_VACUUM_HOURS}; running jobs need what they read")
    for name, days in (("lag", options.retain_lag), ("results", options.retain_results)):
        if days is not None and days < 1:
            _fail(f"--retain-{name}: give a number of days, 1 or more")


def _check_hash_key(options: Options) -> None:
    if len(options.hash_key or "") < _LEAST_HASH_KEY:
        _fail(
            f"--hash-clients: set the environment variable {HASH_KEY} to a secret of "
            f"{_LEAST_HASH_KEY} characters or more, the same in every run"
        )


def _check_thresholds(path: str) -> None:
    from detectors.thresholds import ThresholdsError  # noqa: PLC0415 - help comes without it
    from jobs.runtime.limits import read_thresholds  # noqa: PLC0415

    try:
        read_thresholds(path)
    except ThresholdsError as error:
        _fail(f"--thresholds {path}: {error}")


def _with_environment(text: str) -> str:
    """Replace ${env:NAME} by the values of environment variables."""

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match.group(1))
        if found is None:
            _fail(f"--notify, --notify-key: environment variable {match.group(1)} is not set")
        return found

    return re.sub(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}", value, text)


def _check_query(options: Options) -> None:
    asked = (options.query is not None) + (options.file is not None) + options.serve
    if asked != 1:
        _fail("sql: give exactly one of --query SQL, --file FILE and --serve")
    if options.limit is not None and not 1 <= options.limit < _MOST_ROWS:
        _fail(f"--limit: give a number of rows, 1 to {_MOST_ROWS - 1:,}; leave it out for all")
    if not options.port.isdigit() or int(options.port) >= _PORTS:
        _fail(f"--port {options.port!r} is no port")
    if options.file is not None and not os.access(options.file, os.R_OK):
        _fail(f"--file {options.file}: no such file, or not readable")


def _check_source(options: Options) -> None:
    sources = [options.bootstrap_servers, options.records]
    given = sum(source is not None for source in sources)
    if given != 1 and not (given == 0 and options.job in _SOURCE_IS_OPTIONAL):
        _fail("give exactly one source: --bootstrap-servers HOST:PORT or --records PATH")
    if options.records is not None:
        _check_location("--records", options.records)
    if options.bootstrap_servers is None:
        if options.kafka_config is not None:
            _fail("--kafka-config goes with --bootstrap-servers, not with --records")
        return
    for server in options.bootstrap_servers.split(","):
        found = re.fullmatch(r"\s*\S+:(\d{1,5})\s*", server)
        if found is None:
            _fail(f"--bootstrap-servers: {server!r} is not of the form HOST:PORT")
        if not 0 < int(found[1]) < _PORTS:
            _fail(f"--bootstrap-servers: {found[1]} is no port")
    if options.kafka_config is not None and not os.access(options.kafka_config, os.R_OK):
        _fail(f"--kafka-config {options.kafka_config}: no such file, or not readable")


def _print_overview() -> None:
    width = max(map(len, JOBS))
    lines = [f"  {name:<{width}}  {about}" for name, about in JOBS.items()]
    print(
        "usage: ./spark-submit.sh JOB [options]\n\n"
        "groupledger: the full history of every Kafka consumer group, as Delta tables.\n\njobs:\n"
        + "\n".join(lines)
        + "\n\n./spark-submit.sh JOB --help shows the options of a job.\n\n"
        + _epilog([*_EXAMPLES["demo"], *_EXAMPLES["pipeline"]]),
        end="",
    )


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"groupledger: {message}\n")
    raise SystemExit(2)
