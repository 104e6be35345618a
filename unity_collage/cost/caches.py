"""Where a kernel finds its weights when a network runs again and again.

Between two runs of one kernel all others have read theirs. What they read in total decides which cache the
weights are still in: a price measured with hot weights is too low for a network that is larger than the cache.
"""

from __future__ import annotations

import os

from .. import runtime

_L2_BYTES, _L3_BYTES = 1 << 20, 32 << 20
"""What is assumed where the system does not say."""


def weights_in(constant_bytes: int) -> str:
    """The closest of ``L2``, ``L3``, ``memory`` that holds so many bytes of constants between two runs."""
    l2, l3 = cache_bytes()
    if constant_bytes <= l2:
        return "L2"
    return "L3" if constant_bytes <= l3 * 3 // 4 else "memory"


def evict_bytes(place: str) -> int:
    """How much other memory to stream over so that constants are found in ``place`` and not closer."""
    l2, l3 = cache_bytes()
    return {"L2": 0, "L3": 2 * l2, "memory": 2 * l3}[place]


def cache_bytes() -> tuple[int, int]:
    """Bytes of the second-level caches of all threads' cores together, and of the third-level cache."""
    return _sysconf("SC_LEVEL2_CACHE_SIZE", _L2_BYTES) * runtime.num_threads(), _sysconf(
        "SC_LEVEL3_CACHE_SIZE", _L3_BYTES
    )


def _sysconf(name: str, otherwise: int) -> int:
    return (os.sysconf(name) if name in os.sysconf_names else 0) or otherwise
