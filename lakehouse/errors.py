"""What Spark and Delta call their errors."""

from __future__ import annotations

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException


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
