"""How much memory is available: a container with a limit has less than its machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from unity_collage.machine.memory import available_bytes

MIB = 1 << 20
MOUNT = "sys/fs/cgroup"

CASES: dict[str, tuple[Mapping[str, str], int | None]] = {
    "no groups": ({}, None),
    "no limit": (
        {"proc/self/cgroup": "0::/\n", f"{MOUNT}/memory.max": "max\n", f"{MOUNT}/memory.current": "7\n"}, None,
    ),
    "a container": (
        {
            "proc/self/cgroup": "0::/\n", f"{MOUNT}/memory.max": f"{9 * MIB}\n",
            f"{MOUNT}/memory.current": f"{5 * MIB}\n", f"{MOUNT}/memory.stat": f"anon 4\ninactive_file {2 * MIB}\n",
        }, 6 * MIB,
    ),
    "a group inside": (
        {
            "proc/self/cgroup": "0::/a/b\n", f"{MOUNT}/a/memory.max": f"{3 * MIB}\n",
            f"{MOUNT}/a/memory.current": f"{MIB}\n", f"{MOUNT}/a/b/memory.max": "max\n",
        }, 2 * MIB,
    ),
    "more is used than allowed": (
        {"proc/self/cgroup": "0::/\n", f"{MOUNT}/memory.max": "5\n", f"{MOUNT}/memory.current": "7\n"}, 0,
    ),
    "version 1": (
        {
            "proc/self/cgroup": "3:cpu:/x\n4:memory:/x\n",
            f"{MOUNT}/memory/memory.limit_in_bytes": f"{8 * MIB}\n",
            f"{MOUNT}/memory/memory.usage_in_bytes": f"{MIB}\n",
        }, 7 * MIB,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "left"), CASES.values(), ids=CASES)
def test_the_least_limit_counts(files: Mapping[str, str], left: int | None, tmp_path: Path) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = available_bytes(tmp_path)
    if left is None:
        assert MIB < found <= psutil.virtual_memory().total
    else:
        assert found == left
