"""Timing points in whole programs: in each function and each branch of an ``If``, the clock is read between kernels.

A program is a tree of regions: the body of ``main``, of each function that it calls, and of each branch. A run passes
some of them. A branch announces itself when it begins, so the readings of a run can be assigned to kernels.
:mod:`.instrument` does the same for a ``main`` of one region, without announcements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import IRModule

from ..errors import CollageError
from .instrument import MARK

_ENTER = "collage.profile.enter"
_DIFFERENT = "the program cannot be profiled: its kernels differ from run to run"
_FREE = ("vm.", "relax.builtin.")
"""Beginnings of the names of functions that are not timed: the VM's own, which allocate and make views."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a kernel in a region."""

    kernel: str
    result: str
    """The name of the variable that the result is bound to; empty where it has none."""
    shapes: tuple[str, ...]
    """The types of the tensors that it reads and writes, such as ``float32[1, 64]``; the results come last."""
    is_function: bool
    """Whether the kernel is a function of the module; otherwise a library or the runtime has it."""


Step = Call | int | None
"""A call of a kernel; the number of the region of a function that is called; None: a branch, which announces itself."""


@dataclass(frozen=True, slots=True)
class Region:
    """Bindings that run one after the other."""

    function: str
    steps: tuple[Step, ...]
    """What has a reading of the clock behind it."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A call of a kernel in a run: when it began, in seconds since the first reading, and how long it took."""

    region: int
    step: int
    start: float
    seconds: float


@dataclass(slots=True)
class TimingPoints:
    """Puts timing points into a module that :func:`unity_collage.lowering.build.lower` made."""

    lowered: IRModule
    regions: list[Region] = field(default_factory=list[Region])
    """Region 0 is the body of ``main``."""
    _functions: dict[ir.GlobalVar, ir.BaseFunc] = field(default_factory=dict[ir.GlobalVar, ir.BaseFunc])

    def module(self) -> IRModule:
        """The module with timing points in ``main`` and in all functions that it calls."""
        self._functions = dict(self.lowered.functions_items())
        self.regions.clear()
        self._region_of(self.lowered.get_global_var("main"), {})
        return IRModule(self._functions, attrs=self.lowered.attrs)

    def _region_of(self, gvar: ir.GlobalVar, known: dict[str, int]) -> int:
        """The number of the region of a function, which may call itself; it is made if it is not ``known``."""
        name = str(gvar.name_hint)
        if name not in known:
            known[name] = len(self.regions)
            func: Any = self.lowered[gvar]
            body = self._region(name, func.body, known)
            self._functions[gvar] = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
        return known[name]

    def _region(self, function: str, body: Any, known: dict[str, int], *first: relax.Binding) -> relax.SeqExpr:
        """``body`` with timing points, as a new region, which begins with the bindings ``first``."""
        number, steps, results = len(self.regions), list[Step](), _results(body)
        self.regions.append(Region(function, ()))
        blocks = [relax.BindingBlock([*first, _call(MARK), _call(MARK)])]
        for block in body.blocks:
            bindings: list[relax.Binding] = []
            for binding in block.bindings:
                binding, found = self._timed(function, binding, results, known)
                bindings += [binding, *(_call(MARK) for _ in found)]
                steps += found
            blocks.append(relax.BindingBlock(bindings))
        self.regions[number] = Region(function, tuple(steps))
        return relax.SeqExpr(blocks, body.body)

    def _timed(
        self, function: str, binding: Any, results: Mapping[Any, str], known: dict[str, int]
    ) -> tuple[Any, list[Step]]:
        """The binding, with timing points inside if it has branches, and its step if it has one."""
        value = binding.value
        if isinstance(value, relax.If):
            branches = [self._branch(function, branch, known) for branch in (value.true_branch, value.false_branch)]
            return relax.VarBinding(binding.var, relax.If(value.cond, *branches)), [None]
        if isinstance(value, relax.Call) and isinstance(value.op, ir.GlobalVar):
            if isinstance(self.lowered[value.op], relax.Function):
                return binding, [self._region_of(value.op, known)]
            return binding, [_kernel(value, str(value.op.name_hint), results, True)]
        if isinstance(value, relax.Call) and isinstance(value.op, relax.ExternFunc):
            name = str(value.op.global_symbol)
            return binding, [] if name.startswith(_FREE) else [_kernel(value, name, results, False)]
        return binding, []

    def _branch(self, function: str, body: Any, known: dict[str, int]) -> relax.SeqExpr:
        return self._region(function, body, known, _call(_ENTER, len(self.regions)))


def decoded(
    regions: Sequence[Region], entered: Sequence[int], gaps: Sequence[float]
) -> tuple[list[Timed], list[float]]:
    """The calls of one run in their order, and the seconds of each pair of readings with nothing between them.

    ``entered``: the branches that the run has passed. ``gaps``: the seconds between its readings. Raises
    CollageError where these do not fit.
    """
    marks, path = _times(gaps), iter(entered)
    calls: list[Timed] = []
    readings: list[float] = []

    def run(number: int) -> float:
        begin = next(marks)
        last = next(marks)
        readings.append(last - begin)
        for step, call in enumerate(regions[number].steps):
            if call is None or isinstance(call, int):
                run(next(path) if call is None else call)
                last = next(marks)
            else:
                now = next(marks)
                calls.append(Timed(number, step, last, now - last))
                last = now
        return last

    try:
        run(0)
    except (StopIteration, RuntimeError):
        raise CollageError(_DIFFERENT) from None
    if next(marks, None) is not None or next(path, None) is not None:
        raise CollageError(_DIFFERENT)
    return calls, readings


_entered: list[int] = []
"""The branches that running programs have announced."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The readings of several runs, in seconds."""

    gaps: list[list[float]]
    """From each reading of a run to the next one."""
    pauses: list[float]
    """From the last reading of each run but the last to the first one of the next: this is the caller's."""


class Recorder:
    """Runs a program with timing points. One at a time can run in a process: they share the list of readings."""

    def __init__(self, run: Any):
        """``run``: a function of no arguments that runs the program with timing points once."""
        self.run = run
        self._start, self._read = (
            tvm_ffi.get_global_func(f"collage.profile.{name}") for name in ("start", "read")
        )
        self.readings, self.path = self._once()
        """How often a run reads the clock, and the branches that it passes."""

    def runs(self, count: int) -> Runs:
        """Run ``count`` times; raises CollageError if the runs pass different branches."""
        _entered.clear()
        self._start(count * self.readings)
        for _ in range(count):
            self.run()
        found = [float(gap) for gap in self._read()]
        self._start(0)
        if len(found) != count * self.readings - 1 or _entered != self.path * count:
            raise CollageError(_DIFFERENT)
        per_run = [found[first : first + self.readings - 1] for first in range(0, len(found), self.readings)]
        return Runs(per_run, found[self.readings - 1 :: self.readings])

    def _once(self) -> tuple[int, list[int]]:
        _entered.clear()
        self._start(0)
        self.run()
        return len(self._read()) + 1, list(_entered)


def take_announcements() -> None:
    """Register the function that branches announce themselves to; call it before such a program runs."""
    tvm_ffi.register_global_func(_ENTER, _entered.append, override=True)


def _times(gaps: Sequence[float]) -> Iterator[float]:
    now = 0.0
    yield now
    for gap in gaps:
        now += gap
        yield now


def _call(name: str, *numbers: int) -> relax.Binding:
    arguments = [relax.prim_value(number) for number in numbers]
    call = relax.Call(relax.ExternFunc(name), arguments, ty_args=[relax.TupleType([])])
    return relax.VarBinding(relax.Var("clock", relax.TupleType([])), call)


def _kernel(call: relax.Call, name: str, results: Mapping[Any, str], is_function: bool) -> Call:
    tensors = [arg for arg in _flat(call.args) if isinstance(arg.ty, relax.TensorType)]
    named = (results[arg] for arg in reversed(tensors) if isinstance(arg, relax.Var) and arg in results)
    return Call(name, next(named, ""), tuple(_shape(arg.ty) for arg in tensors), is_function)


def _results(body: Any) -> dict[Any, str]:
    """The names that the memory of results gets once it is written: ``r1 = alloc``."""
    return {
        binding.value: str(binding.var.name)
        for block in body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Var)
    }


def _flat(arguments: Any) -> list[Any]:
    return [
        leaf for arg in arguments for leaf in (_flat(arg.fields) if isinstance(arg, relax.Tuple) else [arg])
    ]


def _shape(ty: Any) -> str:
    if not isinstance(ty.shape, relax.ShapeExpr):
        return f"{ty.dtype}[?]"
    extents = (int(dim) if isinstance(dim, tirx.IntImm) else dim for dim in ty.shape.values)
    return re.sub(r"T\.int64\((-?\d+)\)", r"\1", f"{ty.dtype}[{', '.join(map(str, extents))}]")
