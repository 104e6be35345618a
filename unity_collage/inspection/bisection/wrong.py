"""Which offloaded kernels make results differ from the right ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tvm.ir import IRModule

from ... import reference
from ...errors import CollageError, first_line
from ...frontend.models import Model
from ...profile.agreement import Agreement, compared_results, reference_results, results_of
from ...program import Program
from .delta import smallest_failing
from .found import Bisection
from .partial import OffloadedKernel, PartialPrograms
from .suspects import suspect_of

TVM = "tvm"
"""Stands for the program without offloaded kernels as reference, in place of a runtime."""

_ROUNDING = 1e-5
"""An error above this part of a result's range is not a matter of the order of float32 sums, in models of usual
depth.
"""

_AGREES = "the results agree: with these inputs nothing is wrong"
_NONE = "there is no offloaded kernel that TVM could make instead: none can be left out"
_TOGETHER = (
    "the same kernels one after the other give right results: what differs is how they are put together, such as "
    "branches side by side (docs/branches.md)"
)


@dataclass
class Wrong:
    """Compares programs with the right results."""

    programs: PartialPrograms
    inputs: Mapping[str, np.ndarray]
    against: str
    model: Model
    tolerance: float | None
    imported: IRModule
    tell: Callable[[str], None]
    libraries: Sequence[str | Path] = ()
    """Those with custom operators of the model."""
    _expected: list[np.ndarray] = field(default_factory=list[np.ndarray])
    _failed: list[str] = field(default_factory=list[str])
    _errors: dict[str, float | None] = field(default_factory=dict[str, "float | None"])
    _count: int = 0

    def found(self) -> Bisection:
        """The smallest set; raises CollageError where the program itself, or the one without offloads, cannot run."""
        kernels = self.programs.kernels
        self.tell("making the program without offloads")
        without = self._results(self.programs.program(()))
        if self.against == TVM:
            self._expected = without
        else:
            assert isinstance(self.model, (str, Path))
            self._expected = reference_results(self.model, self.inputs, self.libraries)
        if not self._is_wrong("compiled", self._results(self.programs.whole)):
            return self._ended(_AGREES)
        if self.against != TVM and self._is_wrong("without offloads", without):
            return self._ended(self._not_offloaded())
        if not kernels:
            return self._ended(_NONE)
        if not self._is_wrong("rebuilt", self._results(self.programs.program(kernels))):
            return self._ended(_TOGETHER)
        smallest = smallest_failing(kernels, self._fails)
        rest = [kernel for kernel in kernels if kernel not in smallest]
        still = self._is_wrong("without the suspects", self._results(self.programs.program(rest)))
        return self._ended(_verdict(len(smallest), still), smallest)

    def _fails(self, kernels: Sequence[OffloadedKernel]) -> bool:
        self.tell(f"{len(kernels)} of {len(self.programs.kernels)} kernels offloaded")
        try:
            return self._is_wrong("", self._results(self.programs.program(kernels)))
        except Exception as error:  # a foreign compiler or kernel failed: it is not this fault
            self._failed.append(f"{type(error).__name__}: {first_line(error)}")
            return False

    def _results(self, program: Program) -> list[np.ndarray]:
        self._count += 1
        return results_of(program, self.inputs)

    def _is_wrong(self, name: str, results: Sequence[np.ndarray]) -> bool:
        if len(results) != len(self._expected):
            counts = f"{len(results)} results, and {self.against} has {len(self._expected)}"
            raise CollageError(f"the program has {counts}: they cannot be compared")
        found = self._agreements(results)
        if name:
            self._errors[name] = _largest(found)
        return any(each.reason is not None for each in found)

    def _agreements(self, results: Sequence[np.ndarray]) -> list[Agreement]:
        return compared_results(self.programs.whole, results, self._expected, self.tolerance)

    def _not_offloaded(self) -> str:
        """What is wrong if the program without offloads is: numpy shows whether the import of the model is."""
        if not self.programs.kernels:
            cause = "there is no offloaded kernel that TVM could make instead"
        else:
            cause = "the program without offloads is wrong too, so no offloaded kernel is the cause"
        error = self._errors["without offloads"]
        if error is not None and error < _ROUNDING:
            return (
                f"{cause}: an error of {error:.0e} is usual for rounding; allow more with a larger tolerance"
            )
        self.tell("evaluating the model by numpy")
        try:
            given = [self.inputs[name] for name in self.programs.whole.input_names]
            results = reference.run(self.imported["main"], given, self.imported)
            differs = any(each.reason is not None for each in self._agreements(results))
        except (reference.Unsupported, ValueError) as error:
            return f"{cause}; whether it is the import is not known: {first_line(error)}"
        what = "the import of the model, or its inputs" if differs else "TVM's kernels"
        agrees = "differs" if differs else "agrees"
        return f"{cause}: numpy's evaluation of the imported model {agrees}, so the suspect is {what}"

    def _ended(self, verdict: str, smallest: Sequence[OffloadedKernel] = ()) -> Bisection:
        return Bisection(
            self.against,
            len(self.programs.kernels),
            tuple(suspect_of(self.programs, kernel) for kernel in smallest),
            verdict,
            self._count,
            failed=tuple(dict.fromkeys(self._failed)),
            errors=tuple(self._errors.items()),
        )


def _verdict(count: int, still: bool) -> str:
    one = "this kernel alone makes" if count == 1 else f"these {count} kernels together make"
    first = f"{one} the results differ"
    if still:
        return f"{first}; without {'it' if count == 1 else 'them'} they differ too, so other kernels are wrong as well"
    return f"{first}; without {'it' if count == 1 else 'them'} they agree"


def _largest(found: Sequence[Agreement]) -> float | None:
    errors = [each.error for each in found]
    return (
        None
        if any(error is None for error in errors)
        else max((e for e in errors if e is not None), default=0.0)
    )
