"""Runs SQL over the lakehouse and prints the rows: a table for people, JSON for programs."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, Row

from jobs.runtime.run import Run
from jobs.runtime.runner import run_job
from jobs.runtime.serve import chosen_clusters, serve
from lakehouse.catalog import function_texts, register, view_texts
from reporting.rows import WRITERS
from schemas.errors import GroupledgerError, UsageError
from schemas.tables import all_tables

_SHOWN = 1_000
# Of Spark: raw strings and names in backticks have no escapes. What is not closed goes to the end.
_QUOTED = re.compile(
    r"""\b[rR]'[^']*'?|\b[rR]"[^"]*"?|'(?:\\.|[^'\\])*'?|"(?:\\.|[^"\\])*"?|`[^`]*`?""", re.DOTALL
)
_COMMENT = re.compile(r"--(?:\\\n|[^\r\n])*")
_COMMENTED, _IN_QUOTES, _PLAIN = "comment", "quoted", "plain"
_BRACKET = re.compile(r"/\*|\*/")
_READS = re.compile(
    r"\(*\s*(SELECT|WITH|FROM|VALUES|TABLE|SHOW|DESC|DESCRIBE|EXPLAIN|USE|SET|RESET"
    r"|CREATE (OR REPLACE )?TEMP(ORARY)? (VIEW|FUNCTION))\b"
)
# They may stand behind WITH, FROM and EXPLAIN.
_CHANGES = re.compile(r"\b((INSERT|MERGE) (.+ )?(INTO|OVERWRITE)|DELETE FROM|UPDATE .+ SET)\b")


def sql(run: Run) -> None:
    """Run the statements that were given and print what each gives; or let others ask."""
    if run.options.serve:
        serve(run)
        return
    text = run.options.query or Path(run.options.file or "").read_text("utf-8")
    statements = split(text) if run.options.file else [text]
    for number, statement in enumerate(statements, 1):
        if not run.options.write and not only_reads(statement):
            raise UsageError(
                f"{_where(run, number)}this statement may change tables; with --write it is run"
            )
    register(run.lakehouse, text, chosen_clusters(run))
    run.summary["rows"] = sum(_run(run, n, text) for n, text in enumerate(statements, 1))


def _run(run: Run, number: int, statement: str) -> int:
    """Run a statement, and print its rows; give how many there were."""
    try:
        return _print(run, run.spark.sql(statement))
    except (AnalysisException, ParseException) as error:
        where, named = _where(run, number), _not_found(error)
        ours = next((n for n in (named, f"gold.{named}") if n in all_tables()), None)
        if ours is not None and not run.lakehouse.exists(all_tables()[ours]):
            raise GroupledgerError(f"{where}no run has written {ours} yet") from error
        raise GroupledgerError(where + _first_lines(error)) from error


def _where(run: Run, number: int) -> str:
    return f"{run.options.file}, statement {number}: " if run.options.file else ""


def only_reads(statement: str) -> bool:
    """Return whether a statement changes nothing, as far as its words say.

    One that is not understood counts as one that changes something.
    """
    bare = _bare(statement)
    return bool(_READS.match(bare)) and not _CHANGES.search(bare)


def split(text: str) -> list[str]:
    """Cut a file into statements at semicolons outside of quotes and comments.

    What has nothing but comments is no statement.
    """
    statements, kept, is_said = [], "", False
    for kind, piece in _pieces(text):
        if piece == ";":
            statements += [kept] if is_said else []
            kept, is_said = "", False
            continue
        kept += piece
        is_said |= kind != _COMMENTED and not piece.isspace()
    return [*statements, kept] if is_said else statements


def _bare(text: str) -> str:
    """Return a statement in capitals, without its comments; X stands for what is in quotes."""
    instead = {_COMMENTED: " ", _IN_QUOTES: " X "}
    return " ".join("".join(instead.get(kind, p) for kind, p in _pieces(text)).upper().split())


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Cut SQL into comments, texts in quotes and other characters, each behind its kind."""
    at = 0
    while at < len(text):
        kind, end = _COMMENTED, _after_comment(text, at)
        if end is None:
            quoted = _QUOTED.match(text, at)
            kind, end = (_IN_QUOTES, quoted.end()) if quoted else (_PLAIN, at + 1)
        yield kind, text[at:end]
        at = end


def _after_comment(text: str, at: int) -> int | None:
    """Return the index behind a comment that begins at an index; None if none does, or ends."""
    line = _COMMENT.match(text, at)
    if line is not None:
        return line.end()
    if not text.startswith("/*", at):
        return None
    depth = 0  # block comments lie in each other
    for bracket in _BRACKET.finditer(text, at):
        depth += 1 if bracket.group() == "/*" else -1
        if depth == 0:
            return bracket.end()
    return None


def _print(run: Run, rows: DataFrame) -> int:
    """Print the rows of a statement; return how many were printed."""
    if not rows.columns:
        return 0
    chosen, limit = run.options, run.options.limit
    how = "json" if chosen.json else chosen.format
    if limit is None and how == "table" and run.out.is_terminal:
        limit = _SHOWN
    given = (rows if limit is None else rows.limit(limit + 1)).toLocalIterator()
    count = 0

    def counted() -> Iterator[Row]:
        nonlocal count
        for row in islice(given, limit):
            count += 1
            yield row

    WRITERS[how](run.out, rows.columns, counted())
    if limit is not None and next(given, None) is not None:
        run.say(f"only the first {limit:,} rows are shown; --limit N shows more")
    return count


def _not_found(error: AnalysisException | ParseException) -> str:
    """Return the name of the table, view or function that Spark does not find, or nothing."""
    given = error.getMessageParameters() or {}
    return (given.get("relationName") or given.get("name") or "").replace("`", "").lower()


def _first_lines(error: AnalysisException | ParseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Spark calls a table function by its last word.
    functions = [name.removeprefix("gold.") for name in function_texts()]
    known = [*all_tables(), *view_texts(), *functions]
    near = difflib.get_close_matches(_not_found(error), known, 1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return (lines[0] if lines else "the statement cannot be run") + meant


if __name__ == "__main__":
    sys.exit(run_job(sql, ["sql", *sys.argv[1:]]))
