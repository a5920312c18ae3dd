"""Spark's Thrift Server in a session: BI tools ask the lakehouse by JDBC or ODBC."""

from __future__ import annotations

import ipaddress
import socket
import time
from typing import Any

from pyspark.sql import SparkSession

from schemas.errors import GroupledgerError

_READY_S = 60


def free_port(host: str, port: int) -> int:
    """Return the port, if it can be listened on; any free one for 0."""
    try:
        with socket.create_server((host, port)) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        raise GroupledgerError(
            f"--host {host} --port {port}: cannot listen: {error.strerror or error}"
        ) from error


def start(spark: SparkSession, host: str, port: int) -> Any:  # noqa: ANN401 - Java
    """Start the server, and give it when it listens."""
    jvm: Any = spark._jvm  # noqa: SLF001 - pyspark has no public way
    settings = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    settings.set("hive.server2.thrift.bind.host", host)
    settings.set("hive.server2.thrift.port", str(port))
    # Hive does not replace variables in the property that Spark hands on to it.
    warehouse = spark.catalog.getDatabase("default").locationUri
    settings.set("hive.metastore.warehouse.dir", warehouse)
    thrift = jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
    server = thrift.startWithContext(spark._jsparkSession.sqlContext())  # noqa: SLF001
    for _ in range(_READY_S * 10):
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return server
        time.sleep(0.1)
    raise GroupledgerError(
        f"nothing listens on {host}:{port} after {_READY_S} s (--verbose shows more)"
    )


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, for nobody else to reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
