"""Lets BI tools ask the lakehouse by JDBC or ODBC: Spark's Thrift Server in this session."""

from __future__ import annotations

import ipaddress
import signal
import socket
import threading
from typing import Any

from jobs.runtime.run import Run
from lakehouse.catalog import register
from launch.options import EVERY_CLUSTER
from schemas.errors import GroupledgerError

_NEW_TABLES_S = 60
_READY_S = 60


def serve(run: Run) -> None:
    """Listen until interrupted; tables that are made meanwhile are found within a minute.

    Raises:
        GroupledgerError: the address cannot be listened on.
    """
    host, port = run.options.host, _free(run.options.host, run.options.port)
    clusters, is_writable = chosen_clusters(run), run.options.write
    with run.step("finding the tables"):
        register(run.lakehouse, clusters=clusters, is_writable=is_writable)
    # Anybody that connects is somebody that the operating system let do so: there is no login.
    if not _is_loopback(host):
        run.say(f"anybody who reaches {host}:{port} can read and change all tables")
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    server = _start(run, host, port)
    run.out.print(f"jdbc:hive2://{host}:{port}/gold - listening, end with Ctrl-C", highlight=False)
    while not stopped.wait(_NEW_TABLES_S):
        register(run.lakehouse, clusters=clusters, is_writable=is_writable)
    server.stop()


def chosen_clusters(run: Run) -> list[str] | None:
    """Return the clusters whose rows SQL sees; None stands for all."""
    return None if run.options.cluster == EVERY_CLUSTER else [run.options.cluster]


def _start(run: Run, host: str, port: int) -> Any:  # noqa: ANN401 - Java
    jvm: Any = run.spark._jvm  # noqa: SLF001 - pyspark has no public way
    settings = run.spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    settings.set("hive.server2.thrift.bind.host", host)
    settings.set("hive.server2.thrift.port", str(port))
    # Hive does not replace variables in the property that Spark hands on to it.
    warehouse = run.spark.catalog.getDatabase("default").locationUri
    settings.set("hive.metastore.warehouse.dir", warehouse)
    thrift = jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
    server = thrift.startWithContext(run.spark._jsparkSession.sqlContext())  # noqa: SLF001
    waited = threading.Event()
    for _ in range(_READY_S * 10):
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return server
        waited.wait(0.1)
    raise GroupledgerError(
        f"nothing listens on {host}:{port} after {_READY_S} s (--verbose shows more)"
    )


def _free(host: str, port: int) -> int:
    """Return the port, if it can be listened on; any free one for 0."""
    try:
        with socket.create_server((host, port)) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        raise GroupledgerError(
            f"--host {host} --port {port}: cannot listen: {error.strerror or error}"
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
