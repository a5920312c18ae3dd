"""Options: what is accepted, what is refused, which of line, file and default wins."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from launch import command_line, options, shipping

ROOT = Path(__file__).parents[2]


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as exit_:
        command_line.parse(list(argv))
    assert exit_.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


def test_defaults() -> None:
    chosen = command_line.parse(["ingest", "--records", "x.parquet"])
    assert (chosen.lakehouse, chosen.cluster, chosen.isolation_level) == (
        "./lakehouse",
        "default",
        "read_committed",
    )


@pytest.mark.parametrize("source", [[], ["--records", "x"], ["--bootstrap-servers", "a:1"]])
def test_lag_takes_any_source_or_none(source: list[str]) -> None:
    assert command_line.parse(["lag", *source]).job == "lag"


def test_the_line_beats_the_file_and_the_file_the_default(tmp_path: Path) -> None:
    file = tmp_path / "groupledger.toml"
    file.write_text(
        'lakehouse = "/data/l"\ncluster = "blue"\nbootstrap-servers = "a:1"\n'
        '[conf]\n"spark.ui.enabled" = true\n"spark.x" = "file"\n'
    )
    line = ["--cluster", "green", "--conf", "spark.x=line"]
    chosen = command_line.parse(["pipeline", "--config", str(file), *line])
    assert (chosen.lakehouse, chosen.cluster, chosen.bootstrap_servers) == (
        "/data/l",
        "green",
        "a:1",
    )
    assert chosen.spark_conf == {"spark.ui.enabled": "true", "spark.x": "line"}


def test_one_file_serves_jobs_without_a_source(tmp_path: Path) -> None:
    file = tmp_path / "groupledger.toml"
    file.write_text('records = "x"\ncluster = "blue"\n')
    assert command_line.parse(["decode", "--config", str(file)]).cluster == "blue"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["tidy"], "unknown job 'tidy'; the jobs are demo, ingest"),
        (["pipelin"], "unknown job 'pipelin' (did you mean pipeline?)"),
        (["--lakehouse", "x", "sql"], "the job comes first, then --lakehouse"),
        (["sql", "select 1"], "SQL goes behind --query"),
        (["ingest", "--bootstrap-server", "a:1"], "Did you mean --bootstrap-servers?"),
        (["report", "--lakehouse", __file__], "is a file; name a folder"),
        (["report", "--lakehouse", ""], "--lakehouse is empty"),
        (["ingest", "--records", ""], "--records is empty"),
        (["report", "--lakehouse", "colon:x"], "--lakehouse colon:x: is no URI"),
        (["ingest", "--records", "colon:x"], "--records colon:x: is no URI"),
        (["ingest"], "exactly one source"),
        (["ingest", "--records", "x", "--bootstrap-servers", "a:1"], "exactly one source"),
        (["lag", "--records", "x", "--bootstrap-servers", "a:1"], "exactly one source"),
        (["ingest", "--bootstrap-servers", "a"], "not of the form HOST:PORT"),
        (["ingest", "--bootstrap-servers", "a:1,b:99999"], "99999 is no port"),
        (["ingest", "--bootstrap-servers", "a:0"], "0 is no port"),
        (["ingest", "--records", "x", "--kafka-config", "y"], "goes with --bootstrap-servers"),
        (["ingest", "--bootstrap-servers", "a:1", "--kafka-config", "/no"], "no such file"),
        (["ingest", "--record", "x"], "--record"),
        (["decode", "--records", "x"], "--records"),
        (["decode", "--cluster", "../up"], "letters, digits, dots"),
        (["decode", "--conf", "nonsense"], "not of the form KEY=VALUE"),
        (["decode", "--config", "/no/such.toml"], "cannot be read"),
        (["ingest", "--records", "x", "--isolation-level", "dirty"], '"read_uncommitted"'),
        (["maintain", "--vacuum-hours", "a week"], "unable to convert"),
        (["ingest", "--records"], "requires an argument"),
        (["sql", "--query", ""], "--query is empty"),
        (["decode", "--conf", "key=a", "hunter2"], "1 words belong to no option"),
        (["pipeline", "--dry-run", "--skip", "ingest"], "--dry-run is of an ingest"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage_is_one_line(
    capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    assert words in refusal(capsys, *argv)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour = 1", "unknown option 'colour'"),
        ("lakehose = 'x'", "(did you mean lakehouse?)"),
        ("bootstrap-server = 'a:1'", "'bootstrap-server' (did you mean bootstrap-servers?)"),
        ("bootstrap.servers = 'a:1'", "(did you mean bootstrap-servers?)"),
        ("brokers = 'a:1'", "(did you mean bootstrap-servers?)"),
        ("command-config = 'x'", "(did you mean kafka-config?)"),
        ("sasl.mechanism = 'PLAIN'", "go into the file that kafka-config names"),
        ("vacum-hours = 3", "(did you mean vacuum-hours?)"),
        ("cluster = ['a', 'b']", "cluster has to be one value"),
        ("cluster = []", "cluster has to be one value"),
        ("vacuum-hours = 200.5", "has to be a whole number"),
        ("vacuum-hours = 48\nvacuum_hours = 49", "vacuum_hours is there twice"),
        ('json = "perhaps"', "[json]"),
        ('isolation-level = "dirty"', '"read_uncommitted"'),
        ("conf = 5", "conf has to be a table"),
        ("cluster =", "is not TOML"),
    ],
)
def test_a_wrong_file_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "groupledger.toml"
    file.write_text(text)
    line = refusal(capsys, "ingest", "--records", "x", "--config", str(file))
    assert words in line


@pytest.mark.parametrize(
    "lakehouse", ["file:/x", "dbfs:/x", "s3a://bucket/x", "/a/colon:x", "./a:b"]
)
def test_a_lakehouse_is_a_path_or_a_uri(lakehouse: str) -> None:
    assert command_line.parse(["decode", "--lakehouse", lakehouse]).lakehouse == lakehouse


@pytest.mark.parametrize("option", ["--lakehouse", "--records"])
def test_what_is_escaped_in_a_uri_is_a_part_of_the_path(option: str) -> None:
    chosen = command_line.parse(["ingest", "--records", "r", option, "file:///x/a%20b"])
    assert (chosen.lakehouse, chosen.records)[option == "--records"] == "file:/x/a b"


def test_thresholds_that_are_none_are_wrong_usage(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "thresholds.toml"
    file.write_text("[overrides]\ngroups = 'a.*'\nrebalance_storm = {warning_an_hour = 6}\n")
    assert "[[overrides]]" in refusal(capsys, "anomalies", "--thresholds", str(file))


@pytest.mark.parametrize(("argv", "status"), [([], 2), (["--help"], 0), (["ingest", "-h"], 0)])
def test_help(capsys: pytest.CaptureFixture[str], argv: list[str], status: int) -> None:
    with pytest.raises(SystemExit) as exit_:
        command_line.parse(argv)
    assert exit_.value.code == status
    assert "--lakehouse" in capsys.readouterr().out or not argv[1:]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        command_line.parse(["--version"])
    assert exit_.value.code == 0
    declared = (ROOT / "pyproject.toml").read_text("utf-8").splitlines()
    said = capsys.readouterr().out.split()
    assert said[0] == "groupledger"
    assert f'version = "{said[1]}"' in declared


def test_words_that_are_no_options_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (["--conf", "fs.s3a.secret.key:hunter2"], ["--conf", "a=b", "hunter2"]):
        assert "hunter2" not in refusal(capsys, "decode", *line)


def test_help_needs_no_spark() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import launch.command_line; "
        "sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-I", "-c", program, str(ROOT)], check=True)


def test_every_job_has_a_script_and_the_other_way_round() -> None:
    scripts = {path.stem for path in (ROOT / "jobs").glob("*.py")} - {"__init__"}
    assert scripts == set(options.JOBS)


@pytest.mark.parametrize("job", options.JOBS)
def test_a_job_is_a_script_as_spark_submit_takes_it(job: str, tmp_path: Path) -> None:
    """It stands first on the path of its imports, and the code comes from a zip."""
    archive = shipping.build_archive(tmp_path)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    env["PYTHONPATH"] = str(archive)
    command = [sys.executable, str(ROOT / "jobs" / f"{job}.py"), "--help"]
    outcome = subprocess.run(
        command, check=False, capture_output=True, text=True, env=env, cwd=tmp_path
    )
    assert outcome.returncode == 0, outcome.stderr
    assert f"./spark-submit.sh {job}" in outcome.stdout


def test_no_job_hides_a_module() -> None:
    """`spark-submit jobs/x.py` puts jobs/ first on the path of every import."""
    taken = set(sys.stdlib_module_names) | set(packages_distributions())
    own = {package.parent.name for package in ROOT.glob("*/__init__.py")}
    assert not (set(options.JOBS) | {"runtime"}) & (taken - own)


def test_numbers_in_a_file_are_numbers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "groupledger.toml"
    file.write_text("vacuum-hours = 48\n")
    assert command_line.parse(["maintain", "--config", str(file)]).vacuum_hours == 48
    file.write_text('vacuum-hours = "a week"\n')
    line = refusal(capsys, "maintain", "--config", str(file))
    assert "[vacuum-hours]" in line


class TestSteps:
    def test_all_without_a_choice(self) -> None:
        assert command_line.parse(["pipeline", "--records", "x"]).steps == list(options.STEPS)

    def test_only_and_skip_in_the_order_of_the_pipeline(self) -> None:
        line = ["pipeline", "--only", "validate,history,decode", "--skip", "history"]
        assert command_line.parse(line).steps == ["decode", "validate"]

    @pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("1h", 3600)])
    def test_a_time_between_runs(self, text: str, seconds: int) -> None:
        line = ["pipeline", "--records", "x", "--every", text]
        assert command_line.parse(line).every_s == seconds

    def test_an_ingest_needs_a_source(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "exactly one source" in refusal(capsys, "pipeline", "--only", "ingest")

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (["--skip", "valid"], "there is no step 'valid'"),
            (["--only", "report", "--skip", "report"], "leave no step"),
            (["--every", "15"], "--every '15': give a time such as 90s, 15m or 1h"),
            (["--every", "0m"], "give a time such as"),
            (["--every", "1h", "--dry-run"], "--dry-run writes nothing"),
        ],
    )
    def test_what_is_refused(
        self, line: list[str], words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert words in refusal(capsys, "pipeline", "--records", "x", *line)


def test_an_end_without_a_date_is_the_first_such_time_after_the_start() -> None:
    now = dt.datetime.now(dt.timezone.utc)
    since, until = now - dt.timedelta(minutes=10), now + dt.timedelta(minutes=10)
    line = ["anomalies", "--since", f"{since:%H:%M}", "--until", f"{until:%H:%M}"]
    first, last = command_line.parse(line).span
    assert first is not None
    assert last is not None
    assert last - first == 20 * 60_000


class TestEnvironment:
    def test_beats_the_file_and_is_beaten_by_the_line(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        file = tmp_path / "groupledger.toml"
        file.write_text('lakehouse = "/file"\ncluster = "file"\nvacuum-hours = 48\n')
        monkeypatch.setenv("GROUPLEDGER_CONFIG", str(file))
        monkeypatch.setenv("GROUPLEDGER_LAKEHOUSE", "/environment")
        monkeypatch.setenv("GROUPLEDGER_CLUSTER", "environment")
        chosen = command_line.parse(["maintain", "--cluster", "line"])
        assert (chosen.lakehouse, chosen.cluster) == ("/environment", "line")
        assert chosen.vacuum_hours == 48

    @pytest.mark.parametrize("where", ["environment", "file"])
    def test_a_source_of_the_line_replaces_the_other(
        self, where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        line = ["ingest", "--records", "x"]
        secret = tmp_path / "client.properties"
        secret.touch()
        if where == "file":
            file = tmp_path / "groupledger.toml"
            file.write_text(f'bootstrap-servers = "a:1"\nkafka-config = "{secret}"\n')
            line += ["--config", str(file)]
        else:
            monkeypatch.setenv("GROUPLEDGER_BOOTSTRAP_SERVERS", "a:1")
            monkeypatch.setenv("GROUPLEDGER_KAFKA_CONFIG", str(secret))
        chosen = command_line.parse(line)
        assert (chosen.records, chosen.bootstrap_servers, chosen.kafka_config) == ("x", None, None)
        assert command_line.parse([line[0], *line[3:]]).bootstrap_servers == "a:1"

    @pytest.mark.parametrize("of_line", ["--kafka-config", "--bootstrap-servers"])
    def test_brokers_and_their_properties_may_be_named_apart(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of_line: str
    ) -> None:
        secret = tmp_path / "client.properties"
        secret.touch()
        given = {"--bootstrap-servers": "a:1", "--kafka-config": str(secret)}
        line = ["lag", of_line, given.pop(of_line)]
        for name, value in given.items():
            monkeypatch.setenv("GROUPLEDGER_" + name.strip("-").replace("-", "_").upper(), value)
        chosen = command_line.parse(line)
        assert (chosen.bootstrap_servers, chosen.kafka_config) == ("a:1", str(secret))

    def test_is_one_value_with_blanks_and_none_if_it_is_empty(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GROUPLEDGER_CONF", "spark.driver.extraJavaOptions=-Da=b -Dc=d")
        monkeypatch.setenv("GROUPLEDGER_ONLY", "decode, history,")
        monkeypatch.setenv("GROUPLEDGER_MASTER", "")
        monkeypatch.setenv("GROUPLEDGER_NOTIFY", "")
        chosen = command_line.parse(["pipeline"])
        assert chosen.spark_conf == {"spark.driver.extraJavaOptions": "-Da=b -Dc=d"}
        assert chosen.steps == ["decode", "history"]
        assert (chosen.master, chosen.notify) == (None, None)

    def test_names_no_lakehouse_of_the_demo_and_no_page_of_some_groups(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("GROUPLEDGER_LAKEHOUSE", "/data/groups")
        monkeypatch.setenv("GROUPLEDGER_OUTPUT", "/var/www/groups.html")
        assert command_line.parse(["demo"]).lakehouse == "./demo-lakehouse"
        assert command_line.parse(["report"]).output == "/var/www/groups.html"
        assert "needs --output" in refusal(capsys, "report", "--group", "orders")


class TestCompletion:
    @pytest.mark.parametrize(
        ("words", "offered"),
        [
            (["pipe"], "pipeline"),
            (["ingest", "--boot"], "--bootstrap-servers"),
            (["sql", "--format", "mark"], "markdown"),
        ],
        ids=lambda value: value[-1] if isinstance(value, list) else None,
    )
    def test_bash_offers(self, words: list[str], offered: str, tmp_path: Path) -> None:
        script = tmp_path / "completion.bash"
        script.write_text(self.script("bash"))
        line = " ".join(f"'{word}'" for word in ["./spark-submit.sh", *words])
        program = (
            f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; "
            'complete -p ./spark-submit.sh >&2; _groupledger; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        outcome = subprocess.run(
            ["/bin/bash", "--norc", "-c", program], check=True, capture_output=True, text=True
        )
        assert "-F _groupledger ./spark-submit.sh" in outcome.stderr
        assert outcome.stdout.split() == [offered]

    def test_zsh_has_all_jobs(self) -> None:
        script = self.script("zsh")
        assert all(f"'{job}:" in script for job in options.JOBS)
        assert script.splitlines()[-1].startswith("compdef ")

    @staticmethod
    def script(shell: str) -> str:
        program = "import sys; from launch.command_line import parse; parse(sys.argv[1:])"
        command = [sys.executable, "-c", program, "completion", shell]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


class TestHashClients:
    def test_needs_a_key(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(options.HASH_KEY, raising=False)
        line = refusal(capsys, "decode", "--hash-clients")
        assert "set the environment variable GROUPLEDGER_HASH_KEY" in line

    def test_shows_no_key_that_is_too_short(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(options.HASH_KEY, "hunter2")
        line = refusal(capsys, "pipeline", "--records", "x", "--hash-clients")
        assert "16 characters or more" in line
        assert "hunter2" not in line

    def test_the_key_is_no_part_of_the_options(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(options.HASH_KEY, "a secret for the tests")
        chosen = command_line.parse(["decode", "--hash-clients"])
        assert chosen.hash_key == "a secret for the tests"
        assert "secret" not in repr(chosen)
        assert command_line.parse(["decode"]).hash_key is None

    def test_by_a_file(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv(options.HASH_KEY, "a secret for the tests")
        file = tmp_path / "options.toml"
        file.write_text("hash-clients = true\n")
        assert command_line.parse(["decode", "--config", str(file)]).hash_clients
        assert not command_line.parse(["history", "--config", str(file)]).hash_clients


def test_pagerduty_needs_a_key_and_nobody_else_has_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PD_KEY", "canary-key")
    address = ("anomalies", "--notify", "https://events.eu.pagerduty.com/v2/enqueue")
    assert "--notify-key '${env:NAME}'" in refusal(capsys, *address)
    chosen = command_line.parse([*address, "--notify-key", "${env:PD_KEY}"])
    assert (chosen.notify_shape, chosen.notify_routing_key) == ("pagerduty", "canary-key")
    assert "canary" not in repr(chosen)
    chat = ("anomalies", "--notify", "https://hooks.slack.com/services/x")
    assert command_line.parse([*chat]).notify_shape == "slack"
    assert command_line.parse([*chat, "--notify-format", "json"]).notify_shape == "json"
    said = refusal(capsys, *chat, "--notify-key", "${env:PD_KEY}")
    assert said.endswith("--notify-key goes with --notify-format pagerduty")
    for name in ("NO_SUCH", "no-such.name"):
        said = refusal(capsys, *address, "--notify-key", f"${{env:{name}}}")
        assert said.endswith(f"environment variable {name} is not set")


def test_a_dry_run_of_posts_needs_no_address() -> None:
    chosen = command_line.parse(["anomalies", "--notify-format", "pagerduty", "--notify-dry-run"])
    assert (chosen.notify_url, chosen.notify_shape) == (None, "pagerduty")


@pytest.mark.parametrize("url", ["report.html", "ftp://a/b", "https://a b", f"https://{'a' * 401}"])
def test_the_report_is_opened_in_a_browser(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert "--report-url" in refusal(capsys, "pipeline", "--records", "x", "--report-url", url)
