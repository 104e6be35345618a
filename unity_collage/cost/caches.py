"""Where a kernel finds its weights when a network runs again and again.

Between two runs of one kernel all others have read theirs. What they read in total decides which cache the
weights are still in: a price measured with hot weights is too low for a network that is larger than the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .. import runtime

_L2_BYTES, _L3_BYTES = 1 << 20, 32 << 20
"""What is assumed where the system does not say."""

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches that all threads together have."""

    l2_bytes: int
    """Of the second-level caches of all threads' cores."""
    l3_bytes: int
    """Of the third-level cache, as far as it is there for this machine (:mod:`.last_level`)."""

    def weights_in(self, constant_bytes: int) -> str:
        """The closest of ``L2``, ``L3``, ``memory`` that holds so many bytes of constants between two runs."""
        if constant_bytes <= self.l2_bytes:
            return "L2"
        return "L3" if constant_bytes <= self.l3_bytes * 3 // 4 else "memory"

    def evict_bytes(self, place: str) -> int:
        """How much other memory to stream over so that constants are found in ``place`` and not closer.

        A third-level cache keeps a part of what is twice as large: products of one row with 8 MB of weights took
        92 us behind 64 MB, 112 to 152 us behind 128 MB, and 211 us in a network.
        """
        return {"L2": 0, "L3": 2 * self.l2_bytes, "memory": 4 * self.l3_bytes}[place]


def reported() -> Caches:
    """What the system says. Of a third-level cache that others use too, a machine may get a small part."""
    return Caches(_level_bytes(2, _L2_BYTES) * runtime.num_threads(), _level_bytes(3, _L3_BYTES))


@cache
def _level_bytes(level: int, otherwise: int) -> int:
    """Bytes of the cache of this level that the first core uses."""
    for folder in sorted(_CACHES.glob("index*")):
        if (folder / "level").read_text().strip() == str(level):
            size = (folder / "size").read_text().strip()
            return int(size.rstrip("KM")) << {"K": 10, "M": 20}.get(size[-1], 0)
    return otherwise
