"""How much of the third-level cache is there for this machine: measured once and kept.

A virtual machine is told the size of a cache that it shares with others, or of which it may use a few ways only:
one with two cores was told 105 MiB, and read what exceeds 16 MiB at the speed of memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from math import sqrt

import tvm_ffi

from .. import runtime
from ..database.costs import CostDatabase
from .caches import Caches, reported
from .environment import environment
from .fingerprint import machine, text_of

_FACT = "third-level cache"
_SWEEPS, _TRIALS_SECONDS = 3, 0.08
_STEP = 1.5
"""From one size to the next."""
_NO_CACHE = 1.3
"""A level that is faster than memory by no more than that is none."""

Curve = Sequence[tuple[int, float]]
"""(bytes of a buffer, bytes a second that it is read with again and again), the larger buffers last."""


def caches(database: CostDatabase, *, locked: bool = False) -> Caches:
    """The caches as far as they are there: from the database, else measured now and kept.

    With a ``locked`` database that does not know, as the system reports them.
    """
    said = reported()
    kept = database.fact(_FACT, _fingerprint())
    if kept is None and locked:
        return said
    if kept is None:
        command = [
            sys.executable,
            "-m",
            "unity_collage.processes.launcher",
            "unity_collage.machine.last_level",
        ]
        done = subprocess.run(command, env=environment(), cwd="/", capture_output=True, text=True, check=True)
        kept = json.loads(done.stdout)
        remember(database, kept)
    return replace(said, l3_bytes=int(kept))


def remember(database: CostDatabase, l3_bytes: int) -> None:
    """Let :func:`caches` find so much in ``database``."""
    database.keep_fact(_FACT, _fingerprint(), l3_bytes)


def knee(curve: Curve) -> int | None:
    """The largest buffer that is still read faster than midway between the first one and the last one of ``curve``.

    None where the last one, which is in memory, is read as fast as the first one: there is no such cache.
    """
    near, far = curve[0][1], curve[-1][1]
    if near < _NO_CACHE * far:
        return None
    return [size for size, _ in takewhile(lambda point: point[1] > sqrt(near * far), curve)][-1]


def measured() -> int:
    """Bytes of the third-level cache that this thread finds its data in, measured now; takes some seconds."""
    said = reported()
    own = said.l2_bytes // runtime.num_threads()
    sizes = [2 * own]
    while sizes[-1] * _STEP < said.l3_bytes:
        sizes.append(int(sizes[-1] * _STEP))
    sizes = [*sizes, said.l3_bytes, 2 * said.l3_bytes]
    read = tvm_ffi.get_global_func("collage.runtime.peak_read_evicted")
    rates = dict.fromkeys(sizes, 0.0)
    for _ in range(_SWEEPS):  # the best of several minutes, as near as may be
        for size in sizes:
            rates[size] = max(rates[size], read(size, 2 * own, _TRIALS_SECONDS))
    found = knee(list(rates.items()))
    return said.l2_bytes if found is None else min(found, said.l3_bytes)


def _fingerprint() -> str:
    return text_of({"method": "last level 1", **machine(), "threads": runtime.num_threads()})


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured()) + "\n")
