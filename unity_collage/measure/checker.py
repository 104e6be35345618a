"""Builds the kernels of a request and checks what they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from tvm import relax
from tvm.target import Target

from ..annotations import LIFTED
from ..backends.registry import get
from ..processes.serving import Say
from .ahead import compiling_ahead
from .bench import Bench
from .built_kernel import BuiltKernel, built_kernel, is_compiled_by_tvm, with_twin
from .computations import Computation
from .judge import Trial, asks_for_nan, nan_trial, outputs_or_refusal, outvoted, trials, why_not_with_nan
from .kernels import LoweredKernel, tvm_kernel
from .refusal import Refusal, Refused

_AHEAD = {"stage": "building ahead", "key": None}

T = TypeVar("T")


def in_time(items: Iterable[T], is_late: Callable[[], bool]) -> Iterator[T]:
    """The first of ``items``, and others until it is late."""
    for number, item in enumerate(items):
        if number and is_late():
            return
        yield item


class Checker:
    """Sends a message before each step, and one for each kernel that is refused."""

    def __init__(self, bench: Bench, say: Say):
        self._bench = bench
        self._say = say
        self._last = Computation("")
        """The computation of the last reference: several requests in a row may be about one computation."""

    def prepared(
        self, asked: Sequence[Computation], target: Target, is_late: Callable[[], bool]
    ) -> dict[str, LoweredKernel]:
        """Compute the references; if there are several, kernels of TVM are compiled at the same time.

        Once it is late, only that of the first computation is there.
        """
        of_tvm = {key for one in asked for key in one.asked if is_compiled_by_tvm(one.asked[key])}
        if len(of_tvm) < 2 or not self._bench.compiles_ahead:
            for one in in_time(asked, is_late):
                self._compute(one)
            return {}
        with compiling_ahead() as ahead:
            for one in in_time(asked, is_late):
                self._compute(one)
                self._say(_AHEAD)
                for key in filter(of_tvm.__contains__, one.funcs):
                    ahead.begin(key, partial(self._lowered, one, key, target))
            found: dict[str, LoweredKernel] = {}
            for key, kernel in ahead.finished():
                self._say(_AHEAD)
                found[key] = kernel
                if is_late():
                    break
        self._bench.after_building()
        return found

    def _lowered(self, one: Computation, key: str, target: Target) -> LoweredKernel:
        return tvm_kernel(one.funcs[key], one.trials[0].inputs, get(one.asked[key]["backend"]), target)

    def _compute(self, one: Computation) -> None:
        """The trials of a computation, or those of the last question if it was about the same."""
        if one.digest != self._last.digest:
            self._say({"stage": "computing the reference", "key": None})
            one.trials = trials(one.func)
            tries_nan = self._bench.tries_nan or asks_for_nan(one.func)
            one.nan = nan_trial(one.func) if tries_nan else None
            self._last = one
        else:
            one.trials, one.nan = self._last.trials, self._last.nan

    def check(
        self,
        one: Computation,
        target: Target,
        lowered: dict[str, LoweredKernel],
        has_twins: bool,
        is_late: Callable[[], bool],
    ) -> None:
        """Build the kernels of a computation and check what they compute; those that are right are kept.

        Kernels are taken from ``lowered``. Once it is late no other one is begun.
        """
        for key in in_time(one.funcs, is_late):
            try:
                one.built[key] = self._checked(key, one, target, lowered.pop(key, None), has_twins)
            except Refused as refused:
                self._refuse(key, refused.refusal)
        self._say({"stage": "comparing", "key": None})
        outputs = {key: made.outputs for key, made in one.built.items()}
        for key, refusal in outvoted(one.func, one.trials, outputs).items():
            self._refuse(key, refusal)
            del one.built[key]
        for made in one.built.values():
            made.outputs.clear()

    def _checked(
        self, key: str, one: Computation, target: Target, lowered: LoweredKernel | None, has_twin: bool
    ) -> BuiltKernel:
        """The kernel of one candidate; raises Refused with the reason where there is none."""
        self._say({"stage": "building", "key": key})
        func, asked = one.funcs[key], one.asked[key]
        made = self.built(func, one.trials[0].inputs, asked, target, lowered, has_twin)
        self._say({"stage": "running", "key": key})
        run = self._bench.outputs_of
        made.outputs = self._bench.settled(
            lambda: outputs_or_refusal(func, one.trials, made.kernel, made.constants, run)
        )
        if one.nan is not None:
            self._bench.settled(partial(self._check_nan, func, made, one.nan))
        return made

    def _check_nan(self, func: relax.Function, made: BuiltKernel, nan: Trial) -> None:
        """Raises Refused if a kernel turns NaN into numbers."""
        count = len(func.params) - int(func.attrs[LIFTED])
        got = self._bench.outputs_of(made.kernel, nan.inputs[:count], made.constants, func, True)
        refusal = why_not_with_nan(func, nan, got)
        if refusal is not None:
            raise Refused(refusal)

    def built(
        self,
        func: relax.Function,
        inputs: Sequence[np.ndarray],
        asked: Mapping[str, Any],
        target: Target,
        lowered: LoweredKernel | None = None,
        has_twin: bool = False,
    ) -> BuiltKernel:
        prepare = self._bench.prepare
        try:
            made = built_kernel(func, inputs, asked, target, prepare, lowered)
            return with_twin(made, func, inputs, asked, target, prepare) if has_twin else made
        finally:
            self._bench.after_building()

    def _refuse(self, key: str, refusal: Refusal) -> None:
        kind = None if refusal.kind is None else refusal.kind.value
        self._say({"key": key, "reason": refusal.reason, "kind": kind, "lasting": refusal.lasting})
