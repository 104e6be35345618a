"""Tuner: the tuned schedule of a kernel, from the records or from MetaSchedule."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import tvm
from tvm import tirx
from tvm.target import Target

from ... import runtime
from ...errors import CollageError
from ...processes.child import STARTING, Child
from ...schedule.tuned import kernel_name
from .meta_schedule import why_unavailable
from .records import FAILURES, Tuned, TuningRecords

LOGGER = logging.getLogger(__name__)

_START_SECONDS, _TRIAL_SECONDS = 300.0, 60.0
"""How long to wait for the process to start, and for each trial, which may be a kernel that hangs."""

_MODULE = "unity_collage.measure.tuning.process"


class Tuner:
    """Schedules by kernel: from the records in ``folder``, else from a process of MetaSchedule.

    The process starts when it is needed. Use as a context manager, which ends it.
    """

    def __init__(self, folder: Path, trials: int):
        self._records = TuningRecords(folder)
        self._trials = trials
        self._child: Child | None = None

    def tuned(self, kernel: tirx.PrimFunc, target: Target) -> Tuned | None:
        """The best schedule after at least ``trials`` trials; raises CollageError where MetaSchedule cannot be used.

        Where it fails, which is logged: the best one of fewer trials, or None. After a second failure the kernel is not
        tried again.
        """
        known = self.known(kernel, target)
        if known is not None and known.trials >= self._trials:
            return known
        if self._records.is_given_up(kernel_name(kernel), target):
            path = self._records.folder / FAILURES
            LOGGER.info("%s is not tuned: MetaSchedule has failed for it; without %s it is tried again",
                        kernel_name(kernel), path)  # fmt: skip
            return known
        if (reason := why_unavailable()) is not None:
            raise CollageError(f"kernels cannot be tuned: {reason}")
        with self._records.locked():
            # Another process may have tuned it while this one waited for the lock.
            known = self.known(kernel, target)
            if known is None or known.trials < self._trials:
                found = self._asked(kernel, target, known)
                if found is not None:
                    self._records.keep(found)
                return found or known
        return known

    def known(self, kernel: tirx.PrimFunc, target: Target) -> Tuned | None:
        """The record of a kernel, however few trials it had."""
        return self._records.known(kernel_name(kernel), target)

    def close(self) -> None:
        """End the process; the next kernel starts another."""
        if self._child is not None:
            self._child.close()
        self._child = None

    def __enter__(self) -> Tuner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _asked(self, kernel: tirx.PrimFunc, target: Target, known: Tuned | None) -> Tuned | None:
        before = known or Tuned(kernel_name(kernel), str(target), tvm.__version__, 0)
        more = self._trials - before.trials
        request = {"kernel": tvm.ir.save_json(kernel), "target": str(target), "trials": more}
        reply = self._running().ask(request)
        if "reason" in reply:
            LOGGER.warning(
                "MetaSchedule has failed, and %s keeps its schedule: %s; see %s/tuner.log",
                before.kernel, reply["reason"], self._records.folder,
            )  # fmt: skip
            if self._running().stage != STARTING:  # then no kernel is the cause
                self._records.keep_failure(before)
            return None
        return replace(before, trials=self._trials, trace=reply["trace"], seconds=reply["seconds"])

    def _running(self) -> Child:
        if self._child is None:
            hello = {"folder": str(self._records.folder.resolve()), "threads": runtime.num_threads()}
            self._child = Child(_MODULE, hello, _START_SECONDS + self._trials * _TRIAL_SECONDS)
        return self._child
