"""The command line of all jobs, made of their options by cyclopts: parsing, help, completion.

A value is the one of the command line, else of an environment variable (GROUPLEDGER_VACUUM_HOURS
for --vacuum-hours), else of the TOML file that --config names, else the default.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Iterable
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import unquote, urlsplit

from cyclopts import (
    App,
    ArgumentCollection,
    CycloptsError,
    Group,
    Parameter,
    Token,
    UnusedCliTokensError,
)
from cyclopts.config import Dict, Env

from launch.options import JOBS, Common, Options, Part

_SCRIPT, _COMMAND = "./spark-submit.sh", "groupledger"
_COMPLETION, _PACKAGE = "completion", "package"
COMMANDS = (*JOBS, _PACKAGE, _COMPLETION)
"""All words that can come first."""
# Which source of values comes before which; files are last.
_ENV = "env"
_ORDER = {"cli": 0, _ENV: 1}
# Options of several values; others of a file have one.
_OF_SEVERAL = {"only", "skip"}
# Words of Kafka's tools and clients, up to their first dot as TOML has them, and what is meant.
_SPELLINGS = dict.fromkeys(
    ("bootstrap", "bootstrap-server", "brokers", "broker-list"), "bootstrap-servers"
) | dict.fromkeys(("command-config", "consumer-config", "properties"), "kafka-config")
_OF_CLIENTS = {"security", "sasl", "ssl"}

_HELP = "groupledger: the full history of every Kafka consumer group, as Delta tables."
EPILOGUE = """\
Each option may also be an environment variable (GROUPLEDGER_VACUUM_HOURS for --vacuum-hours) or
stand in the TOML file of --config; the command line comes first, then the environment, then the
file.

Exit status: 0 done, 1 failed with nothing half-written, 2 wrong usage, 3 a critical expectation
failed (validate; pipeline with --strict), 130 interrupted, 143 terminated."""
"""What is below each help."""


def program() -> str:
    """Return what the user has called: the script of a checkout, or the command of a wheel."""
    return _COMMAND if Path(sys.argv[0]).name == _COMMAND else _SCRIPT


def application() -> App:
    """Return the command line of all jobs."""
    app = App(
        name=program(),
        help=_HELP,
        help_format="markdown",
        help_epilogue=EPILOGUE,
        version=_version,
        group_commands=Group("Jobs"),
        group_parameters=Group("Options"),
        default_parameter=Parameter(
            negative=(),
            allow_repeating=True,
            show_default=lambda value: value or None,
            env_var_split=_whole,
        ),
        config=[
            Env("GROUPLEDGER_", command=False, show=False),
            _drop_what_is_empty,
            _from_file,
            _keep_one_source,
            _keep_to_the_line,
        ],
        suppress_keyboard_interrupt=False,
    )
    for order, (name, options) in enumerate(JOBS.items()):
        text = inspect.cleandoc(options.__doc__ or "").replace(_SCRIPT, program())
        app.command(options, name=name, help=text, sort_key=order)
    text = inspect.cleandoc(_package.__doc__ or "").replace(_SCRIPT, program())
    app.command(_package, name=_PACKAGE, help=text, sort_key=len(JOBS))
    app.command(_completion, name=_COMPLETION, sort_key=len(JOBS) + 1)
    return app


def parse(argv: list[str]) -> Options:
    """Read a command line: the job, then its options.

    Raises:
        SystemExit: 0 after printing help, the version or a completion, 2 after a line that says
            what is wrong.
    """
    app = application()
    if not argv or argv[0] == "help":
        app.help_print([])
        raise SystemExit(0 if argv else 2)
    job = argv[0]
    if job.startswith("-") and job not in {"-h", "--help", "--version"}:
        _fail(f"the job comes first, then {job}; the jobs are {', '.join(COMMANDS)}")
    if not job.startswith("-") and job not in COMMANDS:
        _fail(f"unknown job {job!r}{_nearest(job, COMMANDS)}; the jobs are {', '.join(COMMANDS)}")
    chosen = _checked(app, argv)
    if chosen is None:  # help, version and completion have been printed
        raise SystemExit(0)
    values = {field.name: getattr(chosen, field.name) for field in fields(chosen)}
    for name in ("lakehouse", "records"):
        if str(values.get(name)).startswith("file:"):
            # Hadoop takes what is escaped in a URI for the name of another folder.
            values[name] = f"file:{unquote(urlsplit(values[name]).path)}"
    return Options(job=job, **values)


def _checked(app: App, argv: list[str]) -> Common | None:
    """Return the options of a job; None for what is no job."""
    job = argv[0]
    try:
        chosen = app(argv, exit_on_error=False, print_error=False, result_action="return_value")
        if not isinstance(chosen, Common):
            return None
        # Each part looks at its options, that of all jobs first.
        for part in reversed(type(chosen).__mro__):
            if issubclass(part, Part) and "check" in vars(part):
                part.check(chosen)
    except UnusedCliTokensError as error:
        if job == "sql":
            _fail("sql: SQL goes behind --query, in quotes; see --help")
        many = len(error.unused_tokens or ())
        _fail(  # what they are may be a part of a secret
            f"{job}: {many} words belong to no option: a value with blanks needs quotes; see --help"
        )
    except CycloptsError as error:
        _fail(f"{job}: {' '.join(str(error).split())} See --help.")
    except ValueError as error:
        _fail(str(error))
    return chosen


def _package(*, out: str = "./groupledger-cluster", lakehouse: str = "/data/groups") -> None:
    """Write what a Spark cluster needs to run the jobs, and print the command that runs them there.

    ```console
    ./spark-submit.sh package --out /data/groupledger --lakehouse s3a://bucket/groups
    ```

    Args:
        out: Folder to write to.
        lakehouse: Where the tables will be; the JARs of its object store are written, too.
    """
    from launch.jars import JarsError  # noqa: PLC0415 - only here
    from launch.packaging import PackageError, package  # noqa: PLC0415

    try:
        print(package(out, lakehouse))
    except (PackageError, JarsError) as error:
        sys.stderr.write(f"groupledger: {error}\n")
        raise SystemExit(1) from error


def _completion(shell: Literal["bash", "zsh"], /) -> None:
    """Print what lets a shell complete jobs and options.

    ```console
    source <(./spark-submit.sh completion bash)
    ```
    """
    script = application().generate_completion(prog_name="groupledger", shell=shell)
    if shell == "bash":
        function = "complete -o default -F _groupledger"
    else:
        function = "compdef _cyclopts_groupledger"
    print(f"{script}\n{function} groupledger spark-submit.sh ./spark-submit.sh")


def _version() -> str:
    """Read the version where it is declared; a wheel has it in what pip knows of it."""
    file = Path(__file__).parents[1] / "pyproject.toml"
    if not file.is_file():
        return f"groupledger {metadata.version('groupledger')}"
    found = re.search(r'^version = "(.+)"$', file.read_text("utf-8"), re.MULTILINE)
    return f"groupledger {found.group(1) if found else 'unknown'}"


def _from_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Take from the file of --config what neither the line nor the environment has."""
    named = arguments.get("--config", None)
    if named is None or not named.tokens:
        return
    path = named.tokens[-1].value
    found = _toml(path)
    _check_keys(found, path)
    conf = found.pop("conf", {})
    if not isinstance(conf, dict):
        raise ValueError(  # noqa: TRY004 - as all usage errors
            f"--config {path}: conf has to be a table of Spark properties"
        )
    # Properties add up; those of the line come last, and so win.
    arguments["--conf"].tokens[:0] = [
        Token(keyword="--conf", value=f"{key}={value}", source=path)
        for key, value in _properties(conf).items()
    ]
    # A file serves all jobs: what this one does not have is for others.
    mine = _names(JOBS[commands[0]])
    known = {key: value for key, value in found.items() if _name(key) in mine}
    Dict(known, source=path, use_commands_as_keys=False)(app, commands, arguments)


def _check_keys(found: dict[str, Any], path: str) -> None:
    every, seen = _names(Options) - {"job"}, set()
    for key, value in found.items():
        name = _name(key)
        if name not in every:
            raise ValueError(f"--config {path}: unknown option {key!r}{_meant(key, every)}")
        if name in seen:
            raise ValueError(f"--config {path}: {key} is there twice")
        seen.add(name)
        is_list = isinstance(value, list) and name not in _OF_SEVERAL
        if is_list or (isinstance(value, dict) and name != "conf"):
            raise ValueError(f"--config {path}: {key} has to be one value")
        if isinstance(value, float):
            raise ValueError(  # noqa: TRY004 - as all usage errors
                f"--config {path}: {key} has to be a whole number"
            )


def _whole(_: Any, value: str, delimiter: str | None = None) -> list[str]:  # noqa: ANN401
    """Take a variable for one value, also with blanks in it."""
    del delimiter
    return [value]


def _name(key: str) -> str:
    return key.replace("-", "_")


def _names(options: type[Common]) -> set[str]:
    return {field.name for field in fields(options)}


def _drop_what_is_empty(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Take a variable that is set to nothing, as Compose and Kubernetes do, for one that is not."""
    for argument in arguments:
        argument.tokens[:] = [t for t in argument.tokens if t.value or t.source != _ENV]


def _keep_one_source(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Drop the source of the file where the line or the environment names another, and so on.

    Properties of clients go with the brokers that are named where they are.
    """
    brokers, records = (_rank(arguments, f"--{name}") for name in ("bootstrap-servers", "records"))
    properties = _rank(arguments, "--kafka-config")
    first = min(brokers, records)
    for name, rank in (("--bootstrap-servers", brokers), ("--records", records)):
        if rank > first:
            _clear(arguments, name)
    if properties > first and (records == first or properties in {brokers, records}):
        _clear(arguments, "--kafka-config")


def _keep_to_the_line(_: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Let the demo, and a page of some groups, go nowhere but where the line says.

    The file and the environment name the lakehouse and the page of all that is real.
    """
    narrowed = any(_rank(arguments, name) == 0 for name in ("--group", "--since", "--until"))
    names = ["--lakehouse", "--cluster"] if commands == ("demo",) else []
    names += ["--output"] if commands == ("report",) and narrowed else []
    for name in names:
        if _rank(arguments, name) > 0:
            _clear(arguments, name)


def _rank(arguments: ArgumentCollection, name: str) -> int:
    """Return where the value of an option is from: 0 for the line, more for what comes later."""
    argument = arguments.get(name, None)
    if argument is None or not argument.tokens:
        return len(_ORDER) + 1
    return _ORDER.get(argument.tokens[0].source, len(_ORDER))


def _clear(arguments: ArgumentCollection, name: str) -> None:
    argument = arguments.get(name, None)
    if argument is not None:
        argument.tokens.clear()


def _toml(name: str) -> dict[str, Any]:
    """Read the file of --config."""
    from schemas import toml  # noqa: PLC0415 - Python 3.10 needs a package for it

    try:
        found: dict[str, Any] = toml.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"--config {name}: cannot be read: {reason}") from error
    except ValueError as error:
        raise ValueError(f"--config {name}: is not TOML: {error}") from error
    return found


def _properties(table: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return a table's properties; TOML makes tables of dotted keys that are not quoted."""
    found: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= _properties(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _meant(key: str, known: set[str]) -> str:
    """Say what a key of the file is meant to be; the tools of Kafka call things by other names."""
    if key in _OF_CLIENTS:
        return ": properties of Kafka clients go into the file that kafka-config names"
    name = _SPELLINGS.get(key.replace(".", "-").replace("_", "-"))
    return (
        f" (did you mean {name}?)" if name else _nearest(key, [n.replace("_", "-") for n in known])
    )


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"groupledger: {message}\n")
    raise SystemExit(2)
