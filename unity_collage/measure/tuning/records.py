"""TuningRecords: the folder of tuned kernels, with the number of trials and the best schedule of each.

It is MetaSchedule's work folder, with its own database (``database_workload.json``, ``database_tuning_record.json``)
and logs. In addition, ``tuned.jsonl`` has a line for each time a kernel was tuned; the last line of a kernel counts.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import tvm
from tvm.target import Target


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
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(tuned)) + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold a lock, so that no other process tunes in this folder: TVM counts the lines of its files only once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @property
    def _path(self) -> Path:
        return self.folder / "tuned.jsonl"

    def _all(self) -> dict[tuple[str, str, str], Tuned]:
        found: dict[tuple[str, str, str], Tuned] = {}
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            with suppress(ValueError, TypeError):  # the last line of a process that was killed
                tuned = Tuned(**json.loads(line))
                found[tuned.kernel, tuned.target, tuned.tvm] = tuned
        return found
