"""Prints the part of the lines that tests reach, by package; the argument is a file of ``coverage json``."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path, PurePath
from typing import Any

ROOT = "unity_collage"


def by_package(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Reached lines and all lines by package; loose files of the package count as its root."""
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for name, file in report["files"].items():
        parts = PurePath(name).parts
        parts = parts[parts.index(ROOT) :]
        package = parts[1] if len(parts) > 2 else ROOT
        reached, lines = found[package]
        summary = file["summary"]
        found[package] = reached + summary["covered_lines"], lines + summary["num_statements"]
    return dict(found)


def table(packages: dict[str, tuple[int, int]]) -> str:
    """A row for each package, the least covered first, and the sum."""
    rows = sorted(packages.items(), key=lambda item: (_part(item[1]), item[0]))
    rows.append(("all", (sum(r for r, _ in packages.values()), sum(n for _, n in packages.values()))))
    return "\n".join(f"{name:16} {lines:7} lines {_part((r, lines)):7.1%}" for name, (r, lines) in rows)


def _part(counts: tuple[int, int]) -> float:
    return counts[0] / counts[1] if counts[1] else 1.0


if __name__ == "__main__":
    print(table(by_package(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))
