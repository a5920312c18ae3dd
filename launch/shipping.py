"""What Spark gets of us wherever a job runs: the code, as a zip, and settings."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

from launch.jars import CHECKOUT

CONF = CHECKOUT / "conf"

# Top-level packages that no job needs.
NOT_SHIPPED = frozenset({"benchmarks", "docs", "examples", "groupledger", "tests"})

UTC = "-Duser.timezone=UTC"
"""What tells a JVM the zone that all times are in."""
FOR_PYTHON = {
    "GX_ANALYTICS_ENABLED": "False",  # nothing calls home
    # Modules in the user's working directory must not shadow ours (Python 3.11+).
    "PYTHONSAFEPATH": "1",
    "TZ": "UTC",  # Python sees TIMESTAMP columns in the local zone
}
"""What the environment of a job has, wherever it is started."""

# The oldest time that a zip can hold: every build of the same code gives the same bytes.
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


def read_properties(path: Path) -> dict[str, str]:
    """Reads a Spark properties file: a key and a value on each line, `#` for comments."""
    pairs = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            key, _, value = line.strip().replace("\t", " ").partition(" ")
            pairs[key] = value.strip()
    return pairs


def build_archive(cache: Path) -> Path:
    """Packs our packages for `--py-files`; the same code gives the same file.

    The zip's name carries the hash of its content, so that two versions never meet.

    Raises:
        OSError: The folder is not writable.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _shipped_files(CHECKOUT):
            entry = zipfile.ZipInfo(path.relative_to(CHECKOUT).as_posix(), ZIP_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    content = buffer.getvalue()
    target = cache / "code" / f"groupledger-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(content)
        part.replace(target)
    return target


def _shipped_files(root: Path) -> list[Path]:
    packages = [
        init.parent for init in root.glob("*/__init__.py") if init.parent.name not in NOT_SHIPPED
    ]
    return sorted(
        path
        for package in packages
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
