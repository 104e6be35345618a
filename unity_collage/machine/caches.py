"""Where a kernel finds its weights when a network runs again and again.

Between two runs of one kernel all others have read theirs. What they touch in total decides which cache the
weights are still in: a cost measured with hot weights is too low for a network that is larger than the cache. So as
much other memory as that is streamed over before each timed run, and the weights are found where they would be.
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

    def evict_bytes(self, working_set: int) -> int:
        """How much other memory to stream over before a kernel of a network that touches ``working_set`` bytes a run.

        Nothing where they all stay in the second level, and no more than what leaves nothing in the third: it keeps a
        part of what is twice as large. Products of one row with 8 MB of weights took 92 us behind 64 MB, 112 to 152 us
        behind 128 MB, and 211 us in a network of 100 MB. In steps of about 1.4 times: networks of about one size share
        costs.
        """
        if working_set <= self.l2_bytes:
            return 0
        return min(_rounded(working_set), self.all_bytes)

    @property
    def all_bytes(self) -> int:
        """So much other memory leaves nothing in any cache."""
        return _rounded(4 * self.l3_bytes)


def _rounded(nbytes: int) -> int:
    """The nearest of 1, 1.5, 2, 3, 4, 6, 8, ... MiB, by ratio."""
    steps = [part << power for power in range(19, 50) for part in (2, 3)]
    return min(steps, key=lambda step: max(step, nbytes) / min(step, nbytes))


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
