"""An S3 server of this machine: moto's, in an environment of its own."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree as ET

from tests.support.broker import free_ports
from tests.support.cluster import wait_for
from tests.support.environments import environment

HOST = "127.0.0.1"
BUCKET = "lake"
# The server looks for a signature, and not at it.
_SIGNED = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, Signature=any"
_NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"


@dataclass(frozen=True)
class Store:
    """A server with one bucket."""

    url: str  # the address of the bucket
    options: tuple[str, ...]  # what a job needs to reach it
    env: dict[str, str]  # the credentials, as a job's environment has them

    def keys(self, prefix: str) -> list[str]:
        """Name the objects below a prefix."""
        found: list[str] = []
        more = ""
        while True:
            query = f"list-type=2&prefix={quote(prefix, safe='')}{more}"
            page = ET.fromstring(_answer(f"{self.url}?{query}"))  # noqa: S314 - our own server's
            found += [key.text or "" for key in page.iter(f"{_NAMESPACE}Key")]
            token = page.findtext(f"{_NAMESPACE}NextContinuationToken")
            if token is None:
                return found
            more = f"&continuation-token={quote(token, safe='')}"

    def download(self, prefix: str, folder: Path) -> None:
        """Copy the objects below a prefix to a folder of this machine."""
        for key in self.keys(f"{prefix}/"):
            if not key.endswith("/"):
                target = folder / key.removeprefix(f"{prefix}/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(_answer(f"{self.url}/{quote(key)}"))

    def upload(self, file: Path, key: str) -> str:
        """Copy a file of this machine to the bucket; return its URI."""
        _answer(f"{self.url}/{quote(key)}", "PUT", file.read_bytes())
        return f"s3a://{BUCKET}/{key}"


@contextmanager
def s3_server() -> Iterator[Store]:
    """Start a server, which forgets all when it ends.

    Raises:
        TimeoutError: it did not come up.
    """
    (port,) = free_ports(1)
    python = environment("s3-server") / "bin" / "python"
    command = [str(python), "-m", "moto.server", "-H", HOST, "-p", str(port)]
    quiet = subprocess.DEVNULL
    address = f"http://{HOST}:{port}"
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        try:
            wait_for(port)
            _answer(f"{address}/{BUCKET}", "PUT")
            conf = {"endpoint": address, "path.style.access": "true"}
            options = [f"spark.hadoop.fs.s3a.{name}={value}" for name, value in conf.items()]
            yield Store(
                f"{address}/{BUCKET}",
                tuple(word for option in options for word in ("--conf", option)),
                {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"},
            )
        finally:
            process.terminate()


def _answer(url: str, method: str = "GET", content: bytes | None = None) -> bytes:
    # Objects are refused to who does not sign, and what is sent as a form never ends.
    headers = {"Authorization": _SIGNED, "Content-Type": "application/octet-stream"}
    request = urllib.request.Request(url, content, headers, method=method)  # noqa: S310 - http
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return bytes(answer.read())
