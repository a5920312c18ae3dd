"""What to say of an error: one line, also of those by Spark, Delta, Hadoop or Kafka's client."""

from __future__ import annotations

import re
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError, Py4JNetworkError

from schemas.errors import GroupledgerError, LakehouseError, SourceError

_NO_FILE_SYSTEM = (
    "--lakehouse: Spark has no file system for this scheme; give its JARs with --conf spark.jars"
)
_NO_PATTERN = "--group: is no regular expression as Java has them"
_BROKER_GONE = (
    "a broker stopped answering while its records were read; nothing was written, run again when it"
    " is back"
)
_WORKER_GONE = (
    "a Python worker was killed, most likely since memory ran out: run again with more of it, or "
    "with one task at a time (--master 'local[1]')"
)
_HEAP_FULL = (
    "the JVM ran out of memory: run again with more of it (--conf spark.driver.memory=8g, on a"
    " cluster also spark.executor.memory)"
)
_JVM_GONE = (
    "the JVM of Spark has ended, most likely since memory ran out: run again; if it ends once more,"
    " with more memory (--conf spark.driver.memory=8g)"
)

# The error that ended a task: the first line of Python's traceback that is not indented.
_IN_A_TASK = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(?:\w+\.)*(?P<error>\w+): (?P<text>.*)"
)
_PLAIN = (LakehouseError.__name__, SourceError.__name__)
_READ_ONLY = "Read-only file system"

# By Spark, Hadoop and Arrow.
_NO_SUCH_FILE = (
    *("FILE_NOT_EXIST", "PATH_NOT_FOUND"),
    *("FileNotFoundException", "No such file or directory"),
)
_LOST_FILE = re.compile(
    r"(?P<path>[^\s'\"]*(?P<table>(?:bronze|silver|gold|dq)/\w+)/cluster=[^\s'\"]*?\.parquet)"
)
_DAMAGED_FILE = re.compile(
    r"(?:FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER)[^\n]*?file:(?://)?(?P<path>/[^\s\"']+\.parquet)"
)

# Signs of what the machine or the user can repair, by words of Hadoop's and Spark's messages.
_KNOWN = (
    ("Permission denied", "permission denied: check who owns --lakehouse, --records and --output"),
    ("Mkdirs failed", "--lakehouse cannot be written: no folder can be made there"),
    ("DELTA_CANNOT_CREATE_LOG_PATH", "--lakehouse cannot be written: no folder can be made there"),
    ("Parent path is not a directory", "--lakehouse lies below a file, it has to be a folder"),
    ("Not a directory", "--lakehouse cannot be written: no folder can be made there"),
    (
        "DELTA_MISSING_DELTA_TABLE",
        "--lakehouse holds files that are no Delta table where a table has to go: name another",
    ),
    *(
        (sign, "another run wrote to the same table at the same time; run again to go on")
        for sign in ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
    ),
    ("Python worker exited unexpectedly", _WORKER_GONE),
    ("OutOfMemoryError: Java heap space", _HEAP_FULL),
    ("OutOfMemoryError: GC overhead limit exceeded", _HEAP_FULL),
    (
        "No space left on device",
        "the disk is full; nothing half-written counts: make room and run again",
    ),
    ("INVALID_PARAMETER_VALUE.PATTERN", _NO_PATTERN),
    ("PatternSyntaxException", _NO_PATTERN),
    ("No FileSystem for scheme", _NO_FILE_SYSTEM),
    ("ClassNotFoundException: Class org.apache.hadoop.fs", _NO_FILE_SYSTEM),
    (
        "GroupAuthorizationException",
        "not authorized: Spark's reader needs the ACL DESCRIBE on groups spark-kafka-relation*",
    ),
    ("TopicAuthorizationException", "not authorized: the user needs the ACL READ on the topic"),
    ("Cannot fetch record for offset", _BROKER_GONE),
    ("kafka.common.errors.TimeoutException", _BROKER_GONE),
    (
        "Some data may have been lost",
        "the log was cut while it was read (retention?); nothing was written, run again",
    ),
)


def line_of(error: Exception) -> str:
    """Return the line that says what went wrong, and what to do about it."""
    if isinstance(error, GroupledgerError):
        return str(error)
    # Whatever else makes connections has words of its own for those that fail.
    is_jvm_gone = isinstance(error, (Py4JNetworkError, ConnectionError))
    return _JVM_GONE if is_jvm_gone else _explanation(error)


def _explanation(error: Exception) -> str:
    """Return the first line that says something, of an error nobody foresaw."""
    text = str(error)
    if _READ_ONLY in text:  # Java says of a file that it cannot make that it is not found
        return "--lakehouse, --output or --docs cannot be written: the file system is read-only"
    lost, damaged = _LOST_FILE.search(text), _DAMAGED_FILE.search(text)
    if lost is not None and any(sign in text for sign in _NO_SUCH_FILE):
        return f"a data file of {lost['table']} is gone, bring it back from a copy ({lost['path']})"
    if damaged is not None:
        return f"{unquote(damaged['path'])} is damaged, bring it back from a copy"
    for sign, advice in _KNOWN:
        if sign in text:
            return advice
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = cause.toString()
    in_tasks = list(_IN_A_TASK.finditer(text))
    if in_tasks:
        name, message = in_tasks[-1]["error"], in_tasks[-1]["text"]
        return message if name in _PLAIN else f"{name}: {message} (--verbose shows where)"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = lines[0] if lines else "no reason given"
    return f"{type(error).__name__}: {reason} (--verbose shows where)"
