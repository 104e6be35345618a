"""What else the machine does while something is measured: the processor time that others use."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

_NOTABLE = 0.25
"""The machine is busy if others keep more cores busy than this."""
_RESOLUTION = 0.02
"""Seconds that the difference of two readings may be off: the system counts in steps of 10 ms."""


@dataclass(frozen=True, slots=True)
class Load:
    """The mean load of a machine over some time."""

    others: float
    """How many cores were busy with other processes, or taken by other virtual machines."""

    @property
    def is_busy(self) -> bool:
        """Whether it is enough to change what is measured."""
        return self.others > _NOTABLE


class LoadWatch:
    """Counts from the moment that it is made.

    ``has_children``: whether processes that this one starts work for it. Finding them takes milliseconds, since the
    system lists all processes.
    """

    def __init__(self, has_children: bool = True) -> None:
        self._has_children = has_children
        self._began, self._others = time.monotonic(), _seconds_of_others(has_children)

    def load(self) -> Load:
        """The load since the watch was made."""
        elapsed = time.monotonic() - self._began
        others = _seconds_of_others(self._has_children) - self._others - _RESOLUTION
        return Load(max(others, 0.0) / elapsed if elapsed > 0 else 0.0)


def _seconds_of_others(has_children: bool) -> float:
    """Processor time since the machine was started, without that of this process and, if wanted, its descendants."""
    here = psutil.cpu_times()
    # The time of guests is in that of their hosts' processes, user and nice.
    busy = sum(here) - here.idle - sum(getattr(here, name, 0.0) for name in ("iowait", "guest", "guest_nice"))
    this = psutil.Process()
    own = sum(this.cpu_times()[:4])
    for child in this.children(recursive=True) if has_children else ():
        try:
            own += sum(child.cpu_times()[:4])  # with that of its own children that have ended
        except psutil.Error:  # it has ended since, and its parent counts its time
            continue
    return busy - own
