"""Asks OSV for known vulnerabilities of the packages and JARs that are pinned here.

    .venv-dev/bin/python -m tests.support.audit

What is known and not reviewed (``.ci/reviewed.toml``) ends it with 1. Where OSV cannot be asked, it
says so and ends with 0: a build does not depend on a service being there.

What lies inside pyspark is Spark's own choice, and only another pyspark changes it: what is known
of these JARs is printed, and fails nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from launch.jars import pyspark_home
from schemas import toml

ROOT = Path(__file__).resolve().parents[2]
LOCKS = (ROOT / "requirements.lock", ROOT / "requirements-dev.lock")
JARS = tuple(sorted((ROOT / "conf").glob("jars*.xml")))
REVIEWED = ROOT / ".ci" / "reviewed.toml"
SERVICE = "https://api.osv.dev"
_TIMEOUT_S = 20.0
_BATCH = 1_000  # what the service takes at once
_PAGES = 20
_LEAST_REASON = 20


class Package(NamedTuple):
    """What is asked for, in the words of the service."""

    ecosystem: str
    name: str
    version: str


@dataclass(frozen=True)
class Finding:
    """A vulnerability that is known of a package."""

    package: Package
    id: str

    def __str__(self) -> str:
        """Show it in a line."""
        _, name, version = self.package
        return f"{name} {version}: {self.id}"


class CannotAskError(Exception):
    """The service gave no answer that can be used; the message says why."""


def locked(text: str) -> set[Package]:
    """Read the packages of a lock file, for every Python that it serves."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {Package("PyPI", name, version) for name, version in found}


def ours(paths: Iterable[Path] = JARS) -> set[Package]:
    """Read the JARs that are loaded beside Spark's own."""
    roots = (ET.parse(path).getroot() for path in paths)  # noqa: S314 - files of this checkout
    listed = [dependency for root in roots for dependency in root.iter("dependency")]
    return {Package("Maven", f"{d.get('org')}:{d.get('name')}", str(d.get("rev"))) for d in listed}


def inside(folder: Path) -> set[Package]:
    """Read what JARs say that they are made of: most hold Maven's properties of each part."""
    return {part for jar in folder.glob("*.jar") for part in _parts(jar)}


def _parts(jar: Path) -> Iterator[Package]:
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"META-INF/maven/[^/]+/[^/]+/pom\.properties", name):
                text = archive.read(name).decode("utf-8", "replace")
                properties = dict(
                    re.findall(r"^(groupId|artifactId|version)=(\S+)", text, re.MULTILINE)
                )
                if len(properties) == 3:
                    module = f"{properties['groupId']}:{properties['artifactId']}"
                    yield Package("Maven", module, properties["version"])


def known(packages: Iterable[Package], service: str = SERVICE) -> list[Finding]:
    """Ask what is known of packages.

    Raises:
        CannotAskError: there is no answer, or not to all of it.
    """
    open_questions = [(package, "") for package in sorted(packages)]
    found: set[Finding] = set()
    for _ in range(_PAGES):
        rest = []
        for start in range(0, len(open_questions), _BATCH):
            batch = open_questions[start : start + _BATCH]
            for (package, _token), answer in zip(batch, _ask(batch, service), strict=True):
                found |= {Finding(package, entry["id"]) for entry in answer.get("vulns", ())}
                if token := answer.get("next_page_token"):
                    rest.append((package, token))
        if not rest:
            return sorted(found, key=str)
        open_questions = rest
    raise CannotAskError(f"an answer has more than {_PAGES} pages")


def _ask(batch: list[tuple[Package, str]], service: str) -> list[dict[str, object]]:
    queries = []
    for (ecosystem, name, version), token in batch:
        query = {"package": {"ecosystem": ecosystem, "name": name}, "version": version}
        queries.append(query | ({"page_token": token} if token else {}))
    request = urllib.request.Request(  # noqa: S310 - the address is ours
        f"{service}/v1/querybatch",
        data=json.dumps({"queries": queries}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            results = json.loads(answer.read())["results"]
    except urllib.error.HTTPError as error:
        raise CannotAskError(f"it answered with status {error.code}") from error
    except OSError as error:  # URLError and time-outs are such
        raise CannotAskError(str(getattr(error, "reason", error))) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CannotAskError("its answer is not what is known of it") from error
    is_list = isinstance(results, list) and all(isinstance(r, dict) for r in results)
    if not is_list or len(results) != len(batch):
        raise CannotAskError("it did not answer to each package")
    return results


def reviewed(path: Path = REVIEWED) -> dict[tuple[str, str], str]:
    """Read what was reviewed and is accepted: by package and id, the reason.

    Raises:
        ValueError: an entry has no reason, or is no entry.
    """
    found = {}
    for entry in toml.loads(path.read_text("utf-8")).get("reviewed", []):
        if entry.keys() != {"package", "id", "reason"} or len(entry["reason"]) < _LEAST_REASON:
            raise ValueError(f"{path.name}: each entry has a package, an id and a reason: {entry}")
        found[entry["package"], entry["id"]] = entry["reason"]
    return found


def main(argv: list[str]) -> int:
    """Ask, and print; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--service", default=SERVICE, help=f"default {SERVICE}")
    service = parser.parse_args(argv).service
    pinned = set().union(*(locked(path.read_text("utf-8")) for path in LOCKS)) | ours()
    spark = inside(pyspark_home() / "jars") - pinned
    try:
        found, of_spark = known(pinned, service), known(spark, service)
    except CannotAskError as error:
        _say(f"audit: NOT DONE, {service} could not be asked about vulnerabilities: {error}")
        return 0
    accepted = reviewed()
    bad = [f for f in found if (f.package.name, f.id) not in accepted]
    stale = accepted.keys() - {(f.package.name, f.id) for f in found}
    for finding in of_spark:
        _say(f"audit: inside pyspark: {finding}")
    for name, identity in sorted(stale):
        _say(f"audit: {REVIEWED.name} names {identity} of {name}, which is not found any more")
    for finding in bad:
        _say(f"audit: VULNERABLE: {finding} (https://osv.dev/vulnerability/{finding.id})")
    _say(
        f"audit: {len(pinned)} packages and JARs asked about: {len(bad)} vulnerabilities, "
        f"{len(found) - len(bad)} reviewed; {len(spark)} parts inside pyspark: {len(of_spark)}"
    )
    return 1 if bad else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
