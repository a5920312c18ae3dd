"""Errors whose message is one line that tells the user what to do."""

from __future__ import annotations

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException


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


class ConflictError(GroupledgerError):
    """Another run has done the same work first; this one wrote nothing."""


def error_classes(error: BaseException) -> set[str]:
    """Return the error classes of Spark and Delta that an error and its causes have.

    Those of Delta are made of words: ``DELTA_TRUNCATED_TRANSACTION_LOG``.
    """
    found = set()
    if isinstance(error, PySparkException):
        found.add(error.getCondition())
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause is not None:
            try:
                found.add(cause.getErrorClass())
            except Py4JError:  # an exception of Java's own has no class of errors
                found.add(cause.getClass().getSimpleName())
            cause = cause.getCause()
    return {name for name in found if name}
