"""What is asked of the service that knows vulnerabilities, and what is made of its answers."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support import audit
from tests.support.audit import CannotAskError, Finding, Package

LOCK = """\
# made by a tool
altair==6.2.2 ; python_full_version < '3.11' \\
    --hash=sha256:94014f
altair==6.3.0 ; python_full_version >= '3.11' \\
    --hash=sha256:7defb6
    # via great-expectations
vl-convert-python==1.9.0.post1 \\
    --hash=sha256:000000
"""


class Service(HTTPServer):
    """A stand-in that knows of some packages, and gives one vulnerability a page."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer:
    def __init__(self, known: dict[str, list[str]], status: int = 200) -> None:
        self.known, self.status = known, status

    def of(self, query: dict[str, Any]) -> dict[str, Any]:
        ids = self.known.get(query["package"]["name"], [])
        page = int(query.get("page_token", 0))
        if page >= len(ids):
            return {}
        answer: dict[str, Any] = {"vulns": [{"id": ids[page], "modified": "2026-01-01T00:00:00Z"}]}
        return answer | ({"next_page_token": str(page + 1)} if page + 1 < len(ids) else {})


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked += body["queries"]
        content = {"results": [self.server.answer.of(query) for query in body["queries"]]}
        self.send_response(self.server.answer.status if self.path == "/v1/querybatch" else 404)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(Answer({})) as running:
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """One lock file and no parts of Spark; gives the file of what was reviewed."""
    (tmp_path / "lock").write_text(LOCK)
    (tmp_path / "jars").mkdir()
    (tmp_path / "reviewed.toml").write_text("")
    monkeypatch.setattr(audit, "LOCKS", [tmp_path / "lock"])
    monkeypatch.setattr(audit, "pyspark_home", lambda: tmp_path)
    monkeypatch.setattr(audit.reviewed, "__defaults__", (tmp_path / "reviewed.toml",))
    return tmp_path / "reviewed.toml"


def test_packages_of_a_lock_file_for_every_python() -> None:
    assert audit.locked(LOCK) == {
        Package("PyPI", "altair", "6.2.2"),
        Package("PyPI", "altair", "6.3.0"),
        Package("PyPI", "vl-convert-python", "1.9.0.post1"),
    }


def test_all_that_is_pinned_is_asked_about() -> None:
    for path in audit.LOCKS:
        text = path.read_text("utf-8")
        pins = [line for line in text.splitlines() if line and line[0] not in " #"]
        assert len(audit.locked(text)) == len(pins) > 50
    names = {package.name for package in audit.ours()}
    assert {"io.delta:delta-storage", "org.apache.kafka:kafka-clients"} <= names
    listed = "".join(path.read_text("utf-8") for path in audit.JARS)
    # Each Spark has a list of its own, and most lines are in all of them.
    assert len(audit.ours()) == len(set(re.findall(r"<dependency ([^>/]+)", listed)))


def test_parts_of_jars(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "one.jar", "w") as jar:
        for name in ("a", "b"):
            path = f"META-INF/maven/org.example/{name}/pom.properties"
            jar.writestr(path, f"#made\nversion=1.0\ngroupId=org.example\nartifactId={name}\n")
        jar.writestr("META-INF/maven/org.example/c/pom.properties", "version=1\n")
    assert audit.inside(tmp_path) == {
        Package("Maven", "org.example:a", "1.0"),
        Package("Maven", "org.example:b", "1.0"),
    }


def test_every_page_of_an_answer_is_read(service: Service) -> None:
    service.answer = Answer({"b": ["GHSA-1", "PYSEC-2", "CVE-3"]})
    packages = [Package("PyPI", name, "1") for name in "abc"]
    found = audit.known(packages, service.url)
    assert found == [Finding(packages[1], i) for i in ("CVE-3", "GHSA-1", "PYSEC-2")]
    assert service.asked[0] == {"package": {"ecosystem": "PyPI", "name": "a"}, "version": "1"}
    assert len(service.asked) == 5


@pytest.mark.usefixtures("few")
def test_a_finding_fails(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    service.answer = Answer({"altair": ["GHSA-1"]})
    assert audit.main(["--service", service.url]) == 1
    said = capsys.readouterr().out
    assert "VULNERABLE: altair 6.2.2: GHSA-1 (https://osv.dev/vulnerability/GHSA-1)" in said
    asked = 3 + len(audit.ours())
    assert f"{asked} packages and JARs asked about: 2 vulnerabilities, 0 reviewed" in said


def test_a_reviewed_finding_passes(
    service: Service, few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = '[[reviewed]]\npackage = "altair"\nid = "{}"\nreason = "no chart is of a stranger"\n'
    few.write_text(entry.format("GHSA-1") + entry.format("GHSA-2"))
    service.answer = Answer({"altair": ["GHSA-1"]})
    assert audit.main(["--service", service.url]) == 0
    said = capsys.readouterr().out
    assert "0 vulnerabilities, 2 reviewed" in said
    assert "names GHSA-2 of altair, which is not found any more" in said


def test_what_is_inside_pyspark_is_printed_and_fails_nothing(
    service: Service, few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(few.parent / "jars" / "one.jar", "w") as jar:
        properties = "version=1.0\ngroupId=org.example\nartifactId=part\n"
        jar.writestr("META-INF/maven/org.example/part/pom.properties", properties)
    service.answer = Answer({"org.example:part": ["GHSA-1"]})
    assert audit.main(["--service", service.url]) == 0
    assert "inside pyspark: org.example:part 1.0: GHSA-1" in capsys.readouterr().out


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_service_that_refuses_fails_nothing_and_is_reported(
    service: Service, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    service.answer = Answer({"altair": ["GHSA-1"]}, status)
    assert audit.main(["--service", service.url]) == 0
    said = capsys.readouterr().out
    assert said == (
        f"audit: NOT DONE, {service.url} could not be asked about vulnerabilities: "
        f"it answered with status {status}\n"
    )


@pytest.mark.usefixtures("few")
def test_a_service_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(["--service", "http://127.0.0.1:1"]) == 0
    assert "NOT DONE" in capsys.readouterr().out


def test_an_answer_to_fewer_than_all_is_none(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.answer, "of", lambda _: None)
    with pytest.raises(CannotAskError):
        audit.known([Package("PyPI", "a", "1")], service.url)


def test_what_was_reviewed_has_reasons(few: Path) -> None:
    audit.reviewed(audit.REVIEWED)
    few.write_text('[[reviewed]]\npackage = "a"\nid = "b"\nreason = ""\n')
    with pytest.raises(ValueError, match="reason"):
        audit.reviewed(few)
