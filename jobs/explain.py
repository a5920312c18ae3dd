"""Gold to a screen: what one group did between two times, why, and who owned what."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.runtime.options import local_path
from jobs.runtime.page import print_page, write_page
from jobs.runtime.reset import known_log
from jobs.runtime.runner import run_job
from jobs.runtime.times import zone
from reporting.model import Selection, quoted
from reporting.read import log_in_files, rows_of_group
from reporting.remedies import remedies
from reporting.screen import show_story
from reporting.story import Story, events, near_names, window
from reporting.text import printable, to_second
from schemas.errors import UsageError

if TYPE_CHECKING:
    from jobs.runtime.options import Options
    from jobs.runtime.run import Run
    from reporting.model import Log


def explain(run: Run) -> None:
    """Print what a group did in a window of time, in its order, each with its record."""
    chosen, where = run.options, zone(run.options.timezone)
    with run.step("reading the history"):
        story = _read(run)
    if chosen.json:
        run.summary |= story.figures()
    else:
        show_story(run.out, story, where, chosen.partition)
    if chosen.html is not None:
        only = Selection(quoted(story.group), story.since, story.until, story.group)
        run.summary["report"] = path = str(Path(chosen.html).absolute())
        write_page(run, run.lakehouse, path, only)
        if not chosen.json:
            print_page(run)


def _read(run: Run) -> Story:
    """Read what the group did.

    Raises:
        UsageError: the lakehouse does not know the group, or nothing of the window.
    """
    chosen, where, lakehouse = run.options, zone(run.options.timezone), run.lakehouse
    log, group = known_log(lakehouse), chosen.group or ""
    since, until = _window(chosen, log)
    if since < log.first:
        run.say(f"nothing is known before {to_second(log.first, where)} ({chosen.timezone})")
    if until > log.known_until + 1:
        until = log.known_until + 1
        run.say(f"nothing is known after {to_second(until, where)} ({chosen.timezone})")
    found = rows_of_group(lakehouse, group, chosen.partition, since, until)
    counted = remedies(found["generations"], found["members"])
    return Story(group, since, until, events(found, since, until), found, log.first, counted)


def _refuse(chosen: Options) -> None:
    """Refuse what the files of this machine can have no answer to, before Spark starts."""
    root = local_path(chosen.lakehouse)
    log = None if root is None else log_in_files(Path(root), chosen.cluster)
    if log is not None:
        _window(chosen, log)


def _window(chosen: Options, log: Log) -> tuple[int, int]:
    """Return the start and the end of the window that was asked for.

    Raises:
        UsageError: the log does not know the group, or nothing of the window.
    """
    where, group = zone(chosen.timezone), chosen.group or ""
    since, until = window(log, *chosen.span)
    if since >= until:
        raise UsageError(
            f"--since {to_second(since, where)} is not before the newest record, "
            f"{to_second(until, where)}"
        )
    if until <= log.first or since >= log.known_until:
        known = f"{to_second(log.first, where)} to {to_second(log.known_until, where)}"
        raise UsageError(
            f"there is no data from {to_second(since, where)} to {to_second(until, where)}; the "
            f"lakehouse has {known} ({chosen.timezone})"
        )
    if group not in log.groups:
        raise UsageError(
            f"--group {printable(group)}: cluster {chosen.cluster} has no such group"
            f"{near_names(log, group)}"
        )
    return since, until


if __name__ == "__main__":
    sys.exit(run_job(explain, ["explain", *sys.argv[1:]], _refuse))
