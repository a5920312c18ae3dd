"""Writes docs/options.md, the page of all jobs and options, from their declarations."""

from __future__ import annotations

import re
from pathlib import Path

from docs.markdown import item, paragraph
from launch.command_line import EPILOGUE, application

PAGE = Path(__file__).with_suffix(".md")

_INTRODUCTION = """\
# Jobs and options

Written by `docs/options.py` from the declarations in `launch/options.py`;
`tests/unit/test_docs.py` keeps it up to date.
"""
_PROGRAM = "./spark-submit.sh"
_CONTENTS = re.compile(r"## Table of Contents\n.*?(?=\*\*Jobs\*\*)", re.DOTALL)


def page() -> str:
    """Return the text of docs/options.md."""
    found = application().generate_docs(usage_name=_PROGRAM)
    found = _CONTENTS.sub("", found.removeprefix(f"# {_PROGRAM}\n"))
    found = found.replace(f"(#{_PROGRAM}-", "(#").replace(f"## {_PROGRAM} ", "## ")
    found = re.sub(r"\n {4,}", " ", found)  # help texts of several lines
    lines = [item(line[2:]) if line.startswith("* ") else line for line in found.splitlines()]
    first, jobs = "\n".join(lines).split("\n## ", 1)
    how = "\n\n".join(paragraph(" ".join(part.split())) for part in EPILOGUE.split("\n\n"))
    return f"{_INTRODUCTION}{first.rstrip()}\n\n{how}\n\n## {jobs.rstrip()}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
