"""Kernels that a worker has built and may be asked for again."""

from __future__ import annotations

from collections import OrderedDict

from ..runtime.timing import Runner


class Kept:
    """Runners by cost key, as long as what they hold fits into ``nbytes``; those not asked for the longest go first."""

    def __init__(self, nbytes: int):
        self._free = nbytes
        self._runners: OrderedDict[str, tuple[Runner, int]] = OrderedDict()

    def get(self, key: str) -> Runner | None:
        """The runner of this key, if it is still there."""
        if key not in self._runners:
            return None
        self._runners.move_to_end(key)
        return self._runners[key][0]

    def put(self, key: str, runner: Runner, nbytes: int) -> None:
        """Keep ``runner``, which holds ``nbytes``; what is too large is not kept."""
        self._forget(key)
        if nbytes > self._free + sum(held for _, held in self._runners.values()):
            return
        while nbytes > self._free:
            self._forget(next(iter(self._runners)))
        self._runners[key] = runner, nbytes
        self._free -= nbytes

    def _forget(self, key: str) -> None:
        if key in self._runners:
            self._free += self._runners.pop(key)[1]
