"""Record the version and source digest of each native library: ``python tests/unit/record_digests.py``.

``test_native_versions.py`` fails when the sources of a library change. Then raise the version in its ``version.cc`` if
the library computes or performs differently, since measured costs are kept by version, and record the digest.
"""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "unity_collage" / "runtime" / "src"
TABLE = Path(__file__).with_name("native_digests.json")
COMMAND = f"python {Path(__file__).resolve().relative_to(ROOT)}"

_build = runpy.run_path(str(ROOT / "cmake" / "source_digest.py"))
source_digest, FOLDERS = _build["source_digest"], _build["FOLDERS"]

Entry = Mapping[str, object]


def version_file(library: str) -> Path:
    """The source that declares the version of ``library``."""
    return SOURCES / FOLDERS[library] / "version.cc"


def declared_version(library: str) -> int:
    """The version of ``library`` that its sources declare."""
    found = re.search(r"\bkVersion = (\d+);", version_file(library).read_text(encoding="utf-8"))
    assert found is not None, f"{version_file(library)} declares no kVersion"
    return int(found[1])


def entry(library: str) -> Entry:
    """The entry of the table for the sources of ``library`` in this checkout."""
    return {"version": declared_version(library), "digest": source_digest(SOURCES, library)}


def recorded() -> dict[str, Entry]:
    """The table, by library."""
    return json.loads(TABLE.read_text(encoding="utf-8"))


def why_outdated(library: str, now: Entry, then: Entry | None) -> str | None:
    """Why the entry ``then`` of the table is not that of the sources ``now``, and what to do; None when it is."""
    if now == then:
        return None
    if then is None:
        return f"collage_{library} is not in {TABLE.name}: run `{COMMAND}`"
    if now["version"] != then["version"]:
        versions = f"version {now['version']}, and {TABLE.name} has {then['version']}"
        return f"collage_{library} has {versions}: run `{COMMAND}`"
    return (
        f"the sources of collage_{library} changed, and its version did not: raise kVersion in "
        f"{version_file(library).relative_to(ROOT)} if the library computes or performs differently, then run "
        f"`{COMMAND}`"
    )


def main() -> None:
    """Write the table."""
    table = {library: entry(library) for library in FOLDERS}
    TABLE.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
