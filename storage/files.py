"""Files in the lakehouse's own file system, through Hadoop.

The one place that asks Hadoop's Java classes for files: pyspark can write tables, but no file of a
given name, and other libraries do not know the settings and credentials of the session.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def folder_here(spark: SparkSession, folder: str) -> Path | None:
    """Return the path of a folder if it is on this machine, which Hadoop's settings may say."""
    system, path = _opened(spark, folder)
    return Path(path.toUri().getPath()) if system.getUri().getScheme() == "file" else None


def is_empty(spark: SparkSession, folder: str) -> bool:
    """Return whether a folder is not there, or has nothing in it.

    Raises:
        Py4JJavaError: the store cannot be asked; to Hadoop a bucket that is not there is an error.
    """
    system, path = _opened(spark, folder)
    try:
        # To ask whether it is there would tell the same of a bucket that is not.
        return not system.listStatusIterator(path).hasNext()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "FileNotFoundException":
            raise
        return True


def exists(spark: SparkSession, file: str) -> bool:
    """Return whether a file is there."""
    system, path = _opened(spark, file)
    return bool(system.exists(path))


def write(spark: SparkSession, file: str, text: str) -> None:
    """Write a file in the place of the one that is there.

    In an object store it is there as a whole or not at all.
    """
    system, path = _opened(spark, file)
    stream = system.create(path, True)  # noqa: FBT003 - Java has no keywords
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


def delete(spark: SparkSession, file: str) -> None:
    """Delete a file, if it is there."""
    system, path = _opened(spark, file)
    system.delete(path, False)  # noqa: FBT003 - Java has no keywords


def head(spark: SparkSession, file: str, length: int) -> str:
    """Return the first characters of a file; none if it is not there."""
    text = F.substring("value", 1, length)
    try:
        row = spark.read.text(file, wholetext=True).select(text.alias("text")).first()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return ""
    return "" if row is None else str(row.text)


def _opened(spark: SparkSession, uri: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm  # noqa: SLF001 - the module says why
    path = jvm.org.apache.hadoop.fs.Path(uri)
    return path.getFileSystem(spark._jsc.hadoopConfiguration()), path  # noqa: SLF001
