"""From functions of operators to programs, by the tables of a library.

Each operator becomes a step, or is absorbed into the step of an operand. Layout changes stay virtual: a step reads
through them, or a copy materializes them when a step or a result needs the values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
from tvm import ir, relax

from ...annotations import threads_of
from .absorb import CAST, LAYOUT_CHANGES
from .assemble import assemble
from .flatten import Flat, FlatBinding, NotFlat, flatten
from .program import Blob, NativeProgram, NativeStep, programs_json
from .values import op_name, tensors


class NotLowerable(Exception):
    """A function cannot become a program; the message names the function and the operator and says why."""


@dataclass(frozen=True, slots=True)
class Tables:
    """How a library lowers operators. Each function returns a step or the reason why it cannot make one."""

    step: Callable[[relax.Call], NativeStep | str]
    fused: Callable[[NativeStep, relax.Call, int], NativeStep | str]
    absorbed_input: Callable[[NativeStep, relax.Expr, relax.Expr], NativeStep | str]
    absorbed_output: Callable[[NativeStep, relax.Call], NativeStep | str]
    copy: Callable[[relax.Expr, relax.Expr], NativeStep | str]
    """The result of a layout change, as a copy."""
    region: Callable[[Sequence[relax.Call]], NativeStep | str] | None = None
    """All calls of an inner function as one primitive."""
    joined: Callable[[NativeStep, relax.Call, int], NativeStep | str] | None = None
    """The step with a concat, of which field ``i`` is its result."""
    read_in_place: frozenset[str] = LAYOUT_CHANGES | {CAST}
    """Operators that get no step: ``absorbed_input`` reads through them, or they are copied."""
    why_partial: Callable[[NativeStep], str | None] = lambda _step: None
    """Why a step cannot run, or None: some layout changes only work together."""
    steps: Mapping[str, Callable[[relax.Call], NativeStep | str]] = field(
        default_factory=dict[str, "Callable[[relax.Call], NativeStep | str]"]
    )
    """In place of ``step``, by the ``Composite`` label of the function that contains the call."""


def lower_functions(
    functions: Sequence[relax.Function], names: Sequence[str], *tables: Tables
) -> tuple[str, np.ndarray]:
    """The JSON with one program for each function, and the blob of all their constants. Raises NotLowerable.

    A function is lowered by the first of the ``tables`` with which all steps can run, else by the last.
    """
    blob = Blob()
    programs = [lower_function(f, name, tables, blob) for f, name in zip(functions, names, strict=True)]
    return programs_json(programs), blob.taken()


def lower_function(func: relax.Function, name: str, tables: Sequence[Tables], blob: Blob) -> NativeProgram:
    """The program of one function, as :func:`lower_functions` makes it."""
    first, *others = tables
    try:
        flat, steps = _in_order(func, name, first)
        if others and any(first.why_partial(step) for step in steps):
            return lower_function(func, name, others, blob)
        return assemble(name, flat, steps, blob, threads_of(func))
    except NotFlat as error:
        raise NotLowerable(f"{name}: {error}") from error


def _in_order(func: relax.Function, name: str, tables: Tables) -> tuple[Flat, list[NativeStep]]:
    flat = flatten(func)
    lowering = _Lowering(flat, name, tables)
    lowering.make_steps()
    return flat, lowering.put_in_order()


@dataclass(slots=True)
class _Lowering:
    """The lowering of one function: the steps by the variable that they make, in an order in which they can run."""

    flat: Flat
    name: str
    tables: Tables
    made: dict[relax.Expr, NativeStep] = field(default_factory=dict)
    changes: dict[relax.Expr, relax.Expr] = field(default_factory=dict)
    """Virtual values: variables that a layout change makes, with that change."""
    materialized: dict[relax.Expr, None] = field(default_factory=dict)
    """The variables of ``changes`` that a copy has materialized."""
    ordered: list[NativeStep] = field(default_factory=list)

    def make_steps(self) -> None:
        """Make a step for each operator, and absorb the operators behind it as far as the tables allow."""
        calls = {binding.var: binding.call for binding in self.flat.bindings}
        for var, (holder, index) in self.flat.fields.items():
            self._declare_field(var, holder, calls[holder], index)
        reads = self.flat.reads()
        for _, group in groupby(self.flat.bindings, key=lambda binding: binding.region):
            bindings = list(group)
            if not self._as_region(bindings):
                for binding in bindings:
                    self._lower(binding, self.flat.resolved(binding.call), reads)

    def put_in_order(self) -> list[NativeStep]:
        """The steps in running order; they read operands through layout changes, or from copies that come before."""
        for step in self.made.values():
            self._emit(step)
        for result in self.flat.results:
            self._materialize(self.flat.resolve(result))
        return self.ordered

    def _declare_field(self, var: relax.Var, holder: relax.Var, call: relax.Call, index: int) -> None:
        """A part of a split is a layout change; the first field of another operator is its result."""
        if op_name(call) == "relax.split":
            self.changes[var] = relax.TupleGetItem(self.flat.resolved(call), index)
        elif index == 0:
            self.flat.alias[var] = holder
        else:
            raise self._refusal(call, f"field {index} of its result is read")

    def _as_region(self, bindings: Sequence[FlatBinding]) -> bool:
        if self.tables.region is None or len(bindings) < 2:
            return False
        calls = [self.flat.resolved(binding.call) for binding in bindings]
        step = self.tables.region(calls)
        if isinstance(step, str):
            return False
        self._keep(bindings[-1].var, calls[-1], step)
        return True

    def _lower(self, binding: FlatBinding, call: relax.Call, reads: Counter[relax.Expr]) -> None:
        var = binding.var
        if not isinstance(call.op, ir.Op):
            raise NotLowerable(f"{self.name}: a call of {call.op}, which is not an operator")
        if op_name(call) == "relax.split" or self._grows(var, call, reads):
            return
        if op_name(call) in self.tables.read_in_place:
            self.changes[var] = call
            return
        step = self.tables.steps.get(binding.label, self.tables.step)(call)
        if isinstance(step, str):
            raise self._refusal(call, step)
        self._keep(var, call, step)

    def _grows(self, var: relax.Var, call: relax.Call, reads: Counter[relax.Expr]) -> bool:
        return self._as_join(var, call, reads) or self._as_growth(var, call, reads)

    def _as_join(self, var: relax.Var, call: relax.Call, reads: Counter[relax.Expr]) -> bool:
        """Let the step of a field that nothing else reads write the call, a concat; returns whether that worked."""
        if self.tables.joined is None or op_name(call) != "relax.concat":
            return False
        for number, value in enumerate(tensors(call)):
            if value in self.made and reads[value] == 1:
                whole = self.tables.joined(self.made[value], call, number)
                if isinstance(whole, NativeStep):
                    del self.made[value]
                    self._keep(var, call, whole)
                    return True
        return False

    def _as_growth(self, var: relax.Var, call: relax.Call, reads: Counter[relax.Expr]) -> bool:
        """Put the call behind the step of an operand that nothing else reads; returns whether that worked."""
        args = list(call.args)
        for source in [value for value in args if value in self.made and reads[value] == 1]:
            grown = self.tables.absorbed_output(self.made[source], call)
            if isinstance(grown, str):
                grown = self.tables.fused(self.made[source], call, args.index(source))
            if isinstance(grown, NativeStep):
                del self.made[source]
                self._keep(var, call, grown)
                return True
        return False

    def _keep(self, var: relax.Var, call: relax.Call, step: NativeStep) -> None:
        self.made[var] = step.map_views(lambda v: replace(v, buffer=var) if v.buffer == call else v)

    def _emit(self, step: NativeStep) -> None:
        """Append ``step``, after it reads through layout changes or after the copies that materialize its operands."""
        while (
            value := next((v.buffer for v in step.views() if self._is_virtual(v.buffer)), None)
        ) is not None:
            through = self.tables.absorbed_input(step, value, self.changes[value])
            if isinstance(through, str):
                self._materialize(value)
            else:
                step = through.map_views(lambda v: replace(v, buffer=self.flat.resolve(v.buffer)))
        self.ordered.append(step)

    def _materialize(self, value: relax.Expr) -> None:
        if not self._is_virtual(value):
            return
        self.materialized[value] = None
        change = self.changes[value]
        copy = self.tables.copy(value, change)
        if isinstance(copy, str):
            raise NotLowerable(f"{self.name}: {op_name(change) or 'a field'} must be copied: {copy}")
        self._emit(copy)

    def _is_virtual(self, value: object) -> bool:
        return isinstance(value, relax.Expr) and value in self.changes and value not in self.materialized

    def _refusal(self, call: relax.Call, reason: str) -> NotLowerable:
        return NotLowerable(f"{self.name}: {op_name(call)}: {reason}")
