"""Builds the documentation of one version into a folder that holds the sites of several.

usage: python scripts/versioned_site.py VERSION FOLDER

The site is FOLDER/VERSION. The menu of versions in each page reads ``versions.json`` next to it, and ``index.html``
leads to the newest release. Sites of other versions in the folder stay. Any server of static files can serve it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)((?:a|b|rc)\d+)?")
_INDEX = """<!doctype html>
<meta charset="utf-8">
<title>unity_collage</title>
<meta http-equiv="refresh" content="0; url={newest}/">
<a href="{newest}/">unity_collage {newest}</a>
"""


def age(version: str) -> tuple[int, int, int, bool, str]:
    """The sort key of versions: a release comes after its candidates."""
    found = VERSION.fullmatch(version)
    assert found is not None
    return int(found[1]), int(found[2]), int(found[3]), found[4] is None, found[4] or ""


def write_index(folder: Path) -> list[str]:
    """Write ``versions.json`` and ``index.html``; the result are the versions in ``folder``, the newest first."""
    there = [each.name for each in folder.iterdir() if each.is_dir() and VERSION.fullmatch(each.name)]
    versions = sorted(there, key=age, reverse=True)
    releases = [version for version in versions if age(version)[3]] or versions
    listed = [
        {"version": version, "title": version, "aliases": ["latest"] if version == releases[0] else []}
        for version in versions
    ]
    (folder / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(_INDEX.format(newest=releases[0]), encoding="utf-8")
    return versions


def main(arguments: list[str]) -> int:
    """Build and list; returns the exit code."""
    if len(arguments) != 2 or not VERSION.fullmatch(arguments[0]):
        print(
            "usage: python scripts/versioned_site.py VERSION FOLDER, such as 0.2.0 build/sites",
            file=sys.stderr,
        )
        return 2
    version, folder = arguments[0], Path(arguments[1]).absolute()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / version)]
    variables = os.environ | {"SITE_VERSIONS": "mike", "NO_MKDOCS_2_WARNING": "1"}
    code = subprocess.run(command, env=variables, check=False).returncode
    if code == 0:
        print(f"{folder}: {', '.join(write_index(folder))}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
