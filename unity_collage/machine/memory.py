"""How much memory processes may still take here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil


def available_bytes(root: Path = Path("/")) -> int:
    """The memory that the machine has left, or less where a control group of this process has a limit.

    ``root``: where the files of the system are.
    """
    return min([psutil.virtual_memory().available, *_left_in_groups(root)])


def _left_in_groups(root: Path) -> Iterator[int]:
    """What is left in each group with a limit; files that hold no dirty pages count as free."""
    for group, limit_file, used_file in _groups(root):
        limit, used = _number(group / limit_file), _number(group / used_file)
        if limit is not None and used is not None:
            yield max(limit - used + (_stat(group / "memory.stat", "inactive_file") or 0), 0)


def _groups(root: Path) -> Iterator[tuple[Path, str, str]]:
    """The groups of this process and those above it, with the names of their files.

    Groups above a mounted one cannot be seen. A path that is not below the mounted one stands for that one.
    """
    mount = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            top, names = mount, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            top, names = mount / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        group = top / path.lstrip("/")
        while group != top and top in group.parents:
            yield group, *names
            group = group.parent
        yield top, *names


def _number(path: Path) -> int | None:
    """The number in a file; None if there is no such file, or if it says ``max``."""
    text = "".join(_lines(path)[:1])
    return int(text) if text.isdigit() else None


def _stat(path: Path, name: str) -> int | None:
    return next(
        (int(value) for key, _, value in (line.partition(" ") for line in _lines(path)) if key == name), None
    )


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
