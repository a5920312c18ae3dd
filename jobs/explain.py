"""Gold to a screen: what one group did between two times, why, and who owned what."""

from __future__ import annotations

import sys
from pathlib import Path

from jobs.runtime.page import here, page_here, print_page, put, write_page
from jobs.runtime.run import Run, Told
from jobs.runtime.runner import run_job
from launch.options import Options
from launch.times import zone
from reporting.model import Log, Selection, quoted
from reporting.one_group import known_log, log_of, rows_of_group
from reporting.remedies import remedies
from reporting.screen import show_story
from reporting.story import Story, events, near_names, window
from reporting.text import printable, to_second
from schemas.errors import UsageError
from storage.local import NeedsSparkError
from storage.queries import Ask, by_spark


def explain(run: Run) -> None:
    """Print what a group did in a window of time, in its order, each with its record."""
    ask = by_spark(run.lakehouse)
    with run.step("reading the history"):
        story = _read(run, ask, known_log(ask, run.lakehouse.cluster))
    _show(run, story)
    if run.options.html is not None:
        write_page(run, _page(run), _only(story))
        if not run.options.json:
            print_page(run)


def explain_here(told: Told) -> bool:
    """Do the same without Spark, of a lakehouse on this machine; false if it takes Spark."""
    tables = here(told.options)
    if tables is None:
        return False
    text, problem = "", None
    try:
        log = log_of(tables.ask)
        if not log.groups:
            return False
        with told.step("reading the history"):
            story = _read(told, tables.ask, log)
        if told.options.html is not None:
            with told.step("writing the report"):
                try:
                    text = page_here(tables, _only(story))
                except UsageError as error:  # what the group did is told all the same
                    problem = error
    except NeedsSparkError:
        return False
    _show(told, story)
    if problem is not None:
        raise problem
    if told.options.html is not None:
        put(_page(told), text)
        if not told.options.json:
            print_page(told)
    return True


def _only(story: Story) -> Selection:
    """Return what the page of a group tells of."""
    return Selection(quoted(story.group), story.since, story.until, story.group)


def _page(told: Told) -> str:
    told.summary["report"] = path = str(Path(told.options.html or "").absolute())
    return path


def _show(told: Told, story: Story) -> None:
    if told.options.json:
        told.summary |= story.figures()
    else:
        show_story(told.out, story, zone(told.options.timezone), told.options.partition)


def _read(told: Told, ask: Ask, log: Log) -> Story:
    chosen, group = told.options, told.options.group or ""
    where = zone(chosen.timezone)
    since, last = _window(chosen, log)
    until = min(last, log.known_until + 1)
    found = rows_of_group(ask, group, chosen.partition, since, until)
    if since < log.first:
        told.say(f"nothing is known before {to_second(log.first, where)} ({chosen.timezone})")
    if until < last:
        told.say(f"nothing is known after {to_second(until, where)} ({chosen.timezone})")
    counted = remedies(found["generations"], found["members"])
    return Story(group, since, until, events(found, since, until), found, log.first, counted)


def _window(chosen: Options, log: Log) -> tuple[int, int]:
    """Return the start and the end of the window that was asked for."""
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
    sys.exit(run_job(explain, ["explain", *sys.argv[1:]], explain_here))
