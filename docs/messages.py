"""Lists what the product says to its users, and what docs/troubleshooting.md explains of it.

Prints each message and where it is: PYTHONPATH=. .venv-dev/bin/python docs/messages.py
What varies in a message is written as "…".
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "troubleshooting.md"
# Only developers see the errors of other packages: about a declaration or a suite that is wrong.
# A record that cannot be decoded raises nothing: silver.quarantine has the reason.
FILES = (
    *("groupledger/*.py", "jobs/**/*.py", "storage/*.py", "launch/*.py", "sources/*.py"),
    *("detectors/thresholds.py", "dq/due.py", "reporting/alerts.py", "reporting/metrics.py"),
    *("reporting/one_group.py", "reporting/posting.py", "reporting/webhook.py"),
)
LAUNCHERS = ("spark-submit.sh", "conf/bootstrap.sh")
# Calls whose first argument goes to the user, as does that of each error that is raised.
_CALLS = ("_fail", "say")
# Calls whose second argument does: lines of the check, on what is missing, and of what went wrong.
_LINES = ("warn", "missing", "complain")
# Functions that return messages, and constants that hold some.
_RETURN = (
    *("_explanation", "_own_name", "post", "post_once", "_reason", "_unknown_properties"),
    *("another_log", "line_of", "no_tables", "other_bytes"),
)
_HOLD = ("ADVICE", "_KNOWN")
_PREFIX = "groupledger: "
_PAIR = 2
_VARIABLE = re.compile(r"\$\{(?:[^{}]|\{[^{}]*\})*\}|\$\w+")
_ENTRY = re.compile(r"^- (.+?)\*Why:\*.+?\*Do:\*", re.MULTILINE | re.DOTALL)


def messages() -> dict[str, str]:
    """Return each message, with the file and line where the product has it."""
    found: dict[str, str] = {}
    for path in sorted(path for pattern in FILES for path in ROOT.glob(pattern)):
        statements = ast.parse(path.read_text("utf-8")).body
        constants = _assigned([s for s in statements if isinstance(s, ast.Assign)])
        for statement in statements:
            assigned = constants | _assigned(ast.walk(statement))
            for node in _expressions(statement):
                text = _text(node, assigned).rpartition(_PREFIX)[2]
                text = " ".join(re.sub("…+", "…", text).split())
                if re.search("[A-Za-z]{2}", text):  # else all of it varies
                    found.setdefault(text, f"{path.relative_to(ROOT)}:{node.lineno}")
    for name in LAUNCHERS:
        for words in re.findall(r'\bfail ((?:"[^"]+"[\s\\]*)+)', (ROOT / name).read_text("utf-8")):
            text = " ".join(re.findall(r'"([^"]+)"', words))
            found.setdefault(_VARIABLE.sub("…", text), name)
    return found


def explained() -> set[str]:
    """Return the messages that the page explains: in backticks, before "Why" of an entry."""
    entries = " ".join(_ENTRY.findall(PAGE.read_text("utf-8")))
    return {" ".join(span.split()) for span in re.findall(r"`([^`]+)`", entries)}


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Return the expressions whose text goes to the user."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from node.exc.args[:1]
        elif isinstance(node, ast.Call) and _name(node.func) in _CALLS:
            yield from node.args[:1]
        elif isinstance(node, ast.Call) and _name(node.func) in _LINES:
            yield from node.args[1:2]
        elif isinstance(node, ast.FunctionDef) and node.name in _RETURN:
            returned = (n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value)
            yield from (part for value in returned for part in _parts(value))
        elif isinstance(node, ast.Assign) and _name(node.targets[0]) in _HOLD:
            yield from _held(node.value)
        elif isinstance(node, ast.JoinedStr) and _PREFIX in _text(node, {}):
            yield node


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """Return what an expression may be: both sides of a choice, the default of a look-up."""
    if isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    else:
        yield node.args[-1] if isinstance(node, ast.Call) and node.args else node


def _held(node: ast.expr) -> Iterator[ast.expr]:
    """Return the values of a dictionary, and the second parts of pairs."""
    yield from node.values if isinstance(node, ast.Dict) else ()
    tuples = (n.elts for n in ast.walk(node) if isinstance(n, ast.Tuple))
    yield from (parts[1] for parts in tuples if len(parts) == _PAIR)


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return the text of each name that is assigned once."""
    found = [(_name(n.targets[0]), n.value) for n in nodes if isinstance(n, ast.Assign)]
    once = {n: v for n, v in found if [name for name, _ in found].count(n) == 1}
    plain = {name: _text(value, {}) for name, value in once.items()}
    return {name: _text(value, plain) for name, value in once.items()}


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _text(node: ast.expr, assigned: dict[str, str]) -> str:
    """Write an expression as the user sees it, with … for what varies."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "…"
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, assigned) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, assigned)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left, assigned) + _text(node.right, assigned)
    return assigned.get(_name(node), "…") if isinstance(node, ast.Name) else "…"


if __name__ == "__main__":
    for text, where in messages().items():
        sys.stdout.write(f"{where}  {text}\n")
