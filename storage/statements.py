"""SQL as people write it: cut into statements, whether one only reads, what an error says of it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from pyspark.errors import AnalysisException, ParseException

from schemas.tables import all_tables
from storage.catalog import function_texts, view_texts

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


def not_found(error: AnalysisException | ParseException) -> str:
    """Return the name of the table, view or function that Spark does not find, or nothing."""
    given = error.getMessageParameters() or {}
    return (given.get("relationName") or given.get("name") or "").replace("`", "").lower()


def first_line(error: AnalysisException | ParseException) -> str:
    """Return what an error says first, with the name that may have been meant."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Spark calls a table function by its last word.
    functions = [name.removeprefix("gold.") for name in function_texts()]
    known = [*all_tables(), *view_texts(), *functions]
    near = difflib.get_close_matches(not_found(error), known, 1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return (lines[0] if lines else "the statement cannot be run") + meant
