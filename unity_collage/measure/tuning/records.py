"""TuningRecords: the folder of tuned kernels, with the number of trials and the best schedule of each.

It is MetaSchedule's work folder, with its own database (``database_workload.json``, ``database_tuning_record.json``)
and logs. In addition, ``tuned.jsonl`` has a line for each time a kernel was tuned; the last line of a kernel counts.
``failed.jsonl`` has a line for each time MetaSchedule failed for a kernel.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import tvm
from tvm.target import Target

LOGGER = logging.getLogger(__name__)

FAILURES = "failed.jsonl"
"""The name of the file with failures. Without it each kernel is tried again."""

_ATTEMPTS = 2
"""A kernel is given up after MetaSchedule has failed for it this many times: the first failure may have another cause.
"""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of tuning one kernel for one target."""

    kernel: str
    """:func:`unity_collage.schedule.tuned.kernel_name`."""
    target: str
    tvm: str
    trials: int
    """How many trials were requested in total."""
    trace: str = ""
    """The best schedule, as JSON; empty where none could be built and run."""
    seconds: float | None = None
    """As measured by the tuner: a hint, not a cost."""


@dataclass(frozen=True)
class TuningRecords:
    """The records in ``folder``, which need not exist yet."""

    folder: Path

    def known(self, kernel: str, target: Target) -> Tuned | None:
        """The record of a kernel for this target and version of TVM."""
        return self._all().get((kernel, str(target), tvm.__version__))

    def keep(self, tuned: Tuned) -> None:
        """Append one line to the file."""
        self._append("tuned.jsonl", tuned)

    def is_given_up(self, kernel: str, target: Target) -> bool:
        """Whether MetaSchedule has failed too often for a kernel, this target and version of TVM.

        It is not, where MetaSchedule has tuned no kernel yet: then the kernel is not the cause.
        """
        name = kernel, str(target), tvm.__version__
        works = any(_name_of(each)[1:] == name[1:] for each in self._lines("tuned.jsonl"))
        return works and [_name_of(each) for each in self._lines(FAILURES)].count(name) >= _ATTEMPTS

    def keep_failure(self, asked: Tuned) -> None:
        """Append one line about a kernel for which MetaSchedule has failed."""
        self._append(FAILURES, asked)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold a lock, so that no other process tunes in this folder: TVM counts the lines of its files only once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _all(self) -> dict[tuple[str, str, str], Tuned]:
        return {_name_of(tuned): tuned for tuned in self._lines("tuned.jsonl")}

    def _lines(self, name: str) -> Iterator[Tuned]:
        path = self.folder / name
        for line in path.read_text().splitlines() if path.exists() else ():
            with suppress(ValueError, TypeError):  # a line of a process that was killed
                yield Tuned(**json.loads(line))

    def _append(self, name: str, tuned: Tuned) -> None:
        """Write a line, on a line of its own even behind one that is not whole; only a warning if that fails."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / name).open("a+b") as file:
                file.seek(-min(1, file.tell()), os.SEEK_END)
                behind = b"" if file.read() in (b"", b"\n") else b"\n"
                file.write(behind + json.dumps(asdict(tuned)).encode() + b"\n")
        except OSError as error:
            LOGGER.warning("%s is not stored in %s: %s", tuned.kernel, self.folder / name, error.strerror)


def _name_of(tuned: Tuned) -> tuple[str, str, str]:
    return tuned.kernel, tuned.target, tuned.tvm
