"""Where a kernel finds its weights when a network runs again and again.

Between two runs of one kernel all others have read theirs. What they read in total decides which cache the
weights are still in: a price measured with hot weights is too low for a network that is larger than the cache.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from .. import runtime

_L2_BYTES, _L3_BYTES = 1 << 20, 32 << 20
"""What is assumed where the system does not say."""

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def weights_in(constant_bytes: int) -> str:
    """The closest of ``L2``, ``L3``, ``memory`` that holds so many bytes of constants between two runs."""
    l2, l3 = cache_bytes()
    if constant_bytes <= l2:
        return "L2"
    return "L3" if constant_bytes <= l3 * 3 // 4 else "memory"


def evict_bytes(place: str) -> int:
    """How much other memory to stream over so that constants are found in ``place`` and not closer.

    A third-level cache keeps a part of what is twice as large: products of one row with 8 MB of weights took 92 us
    behind 64 MB, 112 to 152 us behind 128 MB, and 211 us in a network.
    """
    l2, l3 = cache_bytes()
    return {"L2": 0, "L3": 2 * l2, "memory": 4 * l3}[place]


def cache_bytes() -> tuple[int, int]:
    """Bytes of the second-level caches of all threads' cores together, and of the third-level cache."""
    return _level_bytes(2, _L2_BYTES) * runtime.num_threads(), _level_bytes(3, _L3_BYTES)


@cache
def _level_bytes(level: int, otherwise: int) -> int:
    """Bytes of the cache of this level that the first core uses."""
    for folder in sorted(_CACHES.glob("index*")):
        if (folder / "level").read_text().strip() == str(level):
            size = (folder / "size").read_text().strip()
            return int(size.rstrip("KM")) << {"K": 10, "M": 20}.get(size[-1], 0)
    return otherwise
