"""The script that deletes groups nobody uses: it is a shell script, whatever groups are named."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from detectors.log import pattern_of
from reporting.cleanup import by_pattern, script

DAY = 86_400_000
NAMES = ["jobs-1", "jobs-22", "it's; rm -rf $HOME", "two\nlines", "`whoami`"]


def row(
    name: str, group_type: str | None = "classic", days: int = 1, **more: object
) -> dict[str, Any]:
    return {
        "group_id": name,
        "group_type": group_type,
        "unused_since": days * DAY,
        "topics": ["clicks"],
        "offsets": 2,
        **more,
    }


def test_each_group_is_deleted_by_the_tool_of_its_protocol(tmp_path: Path) -> None:
    rows = [row(name) for name in NAMES] + [row("s", "share"), row("t", "streams"), row("c", None)]
    for tool in ("consumer", "share", "streams"):
        stub = tmp_path / f"kafka-{tool}-groups.sh"
        stub.write_text(f"#!/bin/sh\nprintf '%s\\0' {tool} \"$@\" >> {tmp_path}/said\n")
        stub.chmod(0o755)
    (tmp_path / "script.sh").write_text(script(rows, 2 * DAY, 3 * DAY))
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "BOOTSTRAP_SERVERS": "b:9092"}
    subprocess.run(["/bin/sh", str(tmp_path / "script.sh")], env=env, check=True)
    said = (tmp_path / "said").read_text().split("\0")[:-1]
    head = ["--bootstrap-server", "b:9092", "--delete"]
    expected = ["consumer", *head]
    for name in [*NAMES, "c"]:
        expected += ["--group", name]
    for tool, name in (("share", "s"), ("streams", "t")):
        expected += [tool, *head, "--group", name]
    assert said == expected
    del env["BOOTSTRAP_SERVERS"]
    refused = subprocess.run(
        ["/bin/sh", str(tmp_path / "script.sh")],
        env=env,
        check=False,
        capture_output=True,
        text=True,
    )
    assert refused.returncode != 0
    assert "set it to HOST:PORT" in refused.stderr


def test_many_groups_are_deleted_a_hundred_at_a_time() -> None:
    text = script([row(f"g{n}") for n in range(201)], DAY, DAY)
    assert [line.count("--group ") for line in text.splitlines() if "--delete" in line] == [
        *(100, 100, 1)
    ]


def test_groups_that_look_alike_are_one_line() -> None:
    rows = [
        *(row(f"batch-{n}", days=n, topics=["clicks", f"t{n % 2}"]) for n in range(1, 4)),
        row("orders-7", offsets=1),
        row("never", topics=[], offsets=0),
    ]
    assert list(by_pattern(rows, pattern_of)) == [
        "batch-* (3 groups): unused since 1970-01-04 00:00:00 UTC, 6 offsets of 3 topics",
        "never: unused since 1970-01-02 00:00:00 UTC, 0 offsets of 0 topics",
        "orders-7: unused since 1970-01-02 00:00:00 UTC, 1 offset of 1 topic",
    ]
