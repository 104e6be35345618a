"""Caches: how much other memory to read before each timed run of a kernel.

Between two runs of a kernel in a network, all other kernels read their weights. If they read more than a cache holds,
they evict the kernel's weights from it. Then a cost measured with warm weights is too low. So the same amount of
other memory is read before each timed run.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .. import runtime

_L2_BYTES, _L3_BYTES = 1 << 20, 32 << 20
"""Sizes that are assumed where the system does not report them."""

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True, slots=True)
class Caches:
    """The sizes of the caches, of all threads together."""

    l2_bytes: int
    """The second-level caches of all threads' cores together."""
    l3_bytes: int
    """The part of the third-level cache that this machine can use (:mod:`.last_level`)."""

    def evict_bytes(self, working_set: int) -> int:
        """How many bytes of other memory to read before a kernel of a network that touches ``working_set`` bytes a run.

        0 if all of them fit into the second level, and at most what evicts the third level: that one keeps a part of
        data twice its size. Products of one row with 8 MB of weights took 92 us after 64 MB of other memory; after
        128 MB they took 112 to 152 us. In a network of 100 MB they took 211 us. The steps are about 1.4 times, so that
        networks of similar sizes share costs.
        """
        if working_set <= self.l2_bytes:
            return 0
        return min(rounded(working_set), self.all_bytes)

    @property
    def all_bytes(self) -> int:
        """How many bytes of other memory evict all caches."""
        return rounded(4 * self.l3_bytes)


def rounded(nbytes: int) -> int:
    """The nearest of 1, 1.5, 2, 3, 4, 6, 8, ... MiB, by ratio."""
    steps = [part << power for power in range(19, 50) for part in (2, 3)]
    return min(steps, key=lambda step: max(step, nbytes) / min(step, nbytes))


def reported() -> Caches:
    """The sizes that the system reports. Of a shared third-level cache a virtual machine may get a small part."""
    return Caches(_level_bytes(2, _L2_BYTES) * runtime.num_threads(), _level_bytes(3, _L3_BYTES))


@cache
def _level_bytes(level: int, otherwise: int) -> int:
    """Bytes of the first core's cache of this level; ``otherwise`` if the system does not report it."""
    for folder in sorted(_CACHES.glob("index*")):
        with suppress(OSError, ValueError):  # some systems report levels without sizes
            if (folder / "level").read_text().strip() == str(level):
                size = (folder / "size").read_text().strip()
                return int(size.rstrip("KM")) << {"K": 10, "M": 20}.get(size[-1:], 0) or otherwise
    return otherwise
