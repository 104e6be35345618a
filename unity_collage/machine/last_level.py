"""How much of the third-level cache this machine can use: measured once and stored in the database.

A virtual machine sees the size of a cache that it shares with others, or of which it may use only a few ways. On one
with two cores the system reported 105 MiB, but anything beyond 16 MiB was read at the speed of memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING

from .. import runtime
from ..ffi import tvm_ffi
from .caches import Caches, reported
from .fingerprint import machine, text_of
from .own_process import measured_by

if TYPE_CHECKING:
    from ..database.costs import CostDatabase

LAST_LEVEL = "third-level cache"
"""The name of a fact: its bytes."""
_TRIALS, _TRIAL_SECONDS = 4, 0.08
"""The best of several trials counts: other work on the machine comes and goes."""
_STEP = 1.5
"""The ratio of one size of the buffer to the next."""
_NO_CACHE = 1.3
"""How many times faster than memory a level must be to count as a cache."""

Read = Callable[[int], float]
"""One trial: the bytes a second at which a buffer of that many bytes is read repeatedly."""


def caches(database: CostDatabase, *, locked: bool = False) -> Caches:
    """The caches that this machine can use: from the database, else measured now and stored there.

    If the database is ``locked`` and does not have them: the caches that the system reports.
    """
    said = reported()
    known = database.fact(LAST_LEVEL, last_level_fingerprint())
    if known is None and locked:
        return said
    if known is None:
        measured = caches_measured_apart()
        store(database, measured.l3_bytes)
        return measured
    return replace(said, l3_bytes=int(known))


def caches_measured_apart() -> Caches:
    """The caches that this machine can use, measured now in a process of its own; raises CollageError."""
    return replace(reported(), l3_bytes=int(measured_by("unity_collage.machine.last_level")))


def store(database: CostDatabase, l3_bytes: int) -> None:
    """Store the size of the third-level cache for :func:`caches`."""
    database.keep_fact(LAST_LEVEL, last_level_fingerprint(), l3_bytes)


def knee(sizes: Sequence[int], read: Read) -> int | None:
    """The largest of the rising ``sizes`` that is read faster than midway between the first and the last one.

    None if the last buffer, which is in memory, is read as fast as the first one: then there is no such cache. Found by
    bisection, since each trial with a large buffer takes a while.
    """
    near = max(read(sizes[0]) for _ in range(_TRIALS))
    far = max(read(sizes[-1]) for _ in range(2))  # half a second each
    if near < _NO_CACHE * far:
        return None
    midway = sqrt(near * far)
    fast, slow = 0, len(sizes) - 1
    while slow - fast > 1:
        middle = (fast + slow) // 2
        if any(read(sizes[middle]) > midway for _ in range(_TRIALS)):
            fast = middle
        else:
            slow = middle
    return sizes[fast]


def measured() -> int:
    """Bytes of the third-level cache that this thread can use, measured now; takes a few seconds."""
    said = reported()
    own = said.l2_bytes // runtime.num_threads()
    sizes = [2 * own]
    while sizes[-1] * _STEP < said.l3_bytes:
        sizes.append(int(sizes[-1] * _STEP))
    sizes = [*sizes, said.l3_bytes, 2 * said.l3_bytes]
    read = tvm_ffi.get_global_func("collage.runtime.peak_read_evicted")
    found = knee(sizes, lambda size: read(size, 2 * own, _TRIAL_SECONDS))
    return said.l2_bytes if found is None else min(found, said.l3_bytes)


def last_level_fingerprint() -> str:
    """The fingerprint of the third-level cache of this machine."""
    return text_of({"method": "last level 1", **machine(), "threads": runtime.num_threads()})


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured()) + "\n")
