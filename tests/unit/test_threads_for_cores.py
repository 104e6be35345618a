"""The default number of threads: the cores that the process may use, and what control groups allow."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from unity_collage.defaults import MOST_THREADS
from unity_collage.runtime import libraries
from unity_collage.runtime.threads import cpu_quota, num_threads, set_num_threads, threads_for_cores

CORES = len(os.sched_getaffinity(0))
V2 = "29 23 0:26 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup rw,nsdelegate"
V1 = "33 23 0:30 {root} /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct"
OTHERS = "23 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n34 23 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset"


def machine(root: Path, mount: str, group: str, files: Mapping[str, str]) -> Path:
    """A folder with the files that say which groups limit a process; paths of ``files`` are below /sys/fs/cgroup."""
    below = root / "sys/fs/cgroup"
    for name, text in files.items():
        (below / name).parent.mkdir(parents=True, exist_ok=True)
        (below / name).write_text(f"{text}\n")
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(f"{OTHERS}\n{mount}\n")
    (root / "proc/self/cgroup").write_text(f"7:cpuset:/elsewhere\n{group}\n")
    return root


@pytest.mark.parametrize(
    ("mount", "group", "files", "quota"),
    [
        (V2.format(root="/"), "0::/a/b", {"a/b/cpu.max": "150000 100000"}, 1.5),
        (V2.format(root="/"), "0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, 0.5),
        (V2.format(root="/"), "0::/a/b", {"a/b/cpu.max": "300000 100000", "a/cpu.max": "80000 20000"}, 3.0),
        (V2.format(root="/"), "0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "max 100000"}, None),
        (V2.format(root="/"), "0::/", {"cpu.max": "100000 100000"}, 1.0),  # a namespace of its own
        (V2.format(root="/"), "0::/../other", {"cpu.max": "200000 100000"}, 2.0),  # outside of the namespace
        (V2.format(root="/pod/x"), "0::/pod/x/y", {"cpu.max": "max 1", "y/cpu.max": "25000 100000"}, 0.25),
        (
            V1.format(root="/"),
            "4:cpu,cpuacct:/a",
            {
                "cpu,cpuacct/a/cpu.cfs_quota_us": "50000",
                "cpu,cpuacct/a/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        (
            V1.format(root="/docker/x"),
            "4:cpu,cpuacct:/docker/x",
            {"cpu,cpuacct/cpu.cfs_quota_us": "400000", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
            4.0,
        ),
        (V1.format(root="/"), "4:cpu,cpuacct:/a", {}, None),
    ],
    ids=[
        "own group", "group around it", "own group is less", "no limit", "namespace", "outside", "mounted group",
        "version 1", "version 1 in a container", "no files",
    ],
)  # fmt: skip
def test_the_quota_is_the_least_of_the_groups_around_a_process(
    tmp_path: Path, mount: str, group: str, files: Mapping[str, str], quota: float | None
) -> None:
    root = machine(tmp_path, mount, group, files)
    assert cpu_quota(root) == quota
    expected = CORES if quota is None else min(CORES, -int(-quota // 1))
    assert threads_for_cores(root) == expected


def test_a_machine_without_control_groups_has_a_thread_for_each_core(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert threads_for_cores(tmp_path) == CORES


def test_hardware_threads_of_one_core_count_once(tmp_path: Path) -> None:
    for processor in os.sched_getaffinity(0):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{processor}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text("0-255\n")
    assert threads_for_cores(tmp_path) == 1


@pytest.fixture
def half_a_processor() -> Iterator[Path]:
    """A control group of this machine that allows half a processor."""
    found = Path("/sys/fs/cgroup/cpu") if Path("/sys/fs/cgroup/cpu").is_dir() else Path("/sys/fs/cgroup")
    group = found / f"collage-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        if (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_quota_us").write_text("50000")
        else:
            (group / "cpu.max").write_text("50000 100000")
        yield group
    except OSError as error:
        pytest.skip(f"no control group can be limited: {error}")
    finally:
        with suppress(OSError):
            group.rmdir()


def test_a_process_within_half_a_processor_has_one_thread(half_a_processor: Path) -> None:
    ask = (
        "from unity_collage.runtime.threads import cpu_quota, num_threads; print(cpu_quota(), num_threads())"
    )
    inside = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(half_a_processor)]
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [*inside, sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["0.5", "1"], done.stderr


@pytest.mark.parametrize("count", [0, -1, MOST_THREADS + 1, 1 << 20, (1 << 32) + 2])
def test_a_number_of_threads_that_no_machine_has_is_refused(count: int) -> None:
    before = num_threads()
    with pytest.raises(ValueError, match=f"must be from 1 to {MOST_THREADS}, not {count}"):
        set_num_threads(count)
    assert num_threads() == before


@pytest.mark.parametrize("name", ["TVM_NUM_THREADS", "OMP_NUM_THREADS"])
@pytest.mark.parametrize(
    ("text", "count"),
    [("3,2", "3"), (f"{MOST_THREADS + 1}", f"{MOST_THREADS}"), ("9" * 30, f"{MOST_THREADS}")],
)
def test_a_variable_sets_no_more_threads_than_a_machine_has(name: str, text: str, count: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    code = "from unity_collage.runtime import num_threads; print(num_threads())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, name: text},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == count


def test_callers_in_c_are_told_too() -> None:
    before, path = num_threads(), libraries.own_library("runtime")
    runtime = ctypes.CDLL(str(path))
    runtime.collage_error.restype = ctypes.c_char_p
    assert runtime.collage_set_threads(MOST_THREADS + 1) == -1
    assert runtime.collage_error() == b"the number of threads must be from 1 to 1024, not 1025"
    assert runtime.collage_set_threads(before) == 0 and num_threads() == before
