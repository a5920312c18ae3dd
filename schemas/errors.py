"""Errors whose message is one line that tells the user what to do."""

from __future__ import annotations


class GroupledgerError(Exception):
    """A job cannot go on; the message says why and what to do about it.

    Attributes:
        status: the exit status that it ends with.
    """

    status = 1


class UsageError(GroupledgerError):
    """An option names what is not there."""

    status = 2


class LakehouseError(GroupledgerError):
    """The lakehouse cannot be read or written as it is."""


class SourceError(GroupledgerError):
    """The records cannot be read from where they are said to be."""
