"""A body that runs again and again, for Loop and Scan: unrolled while importing if it is short, else a recursion."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GlobalVar

from .captured import Captured, Inside
from .node import NodeRefused
from .recursion import Form, TensorForm, add_nothing, add_recursion, no_rows
from .symbolic import are_equal, is_nonnegative
from .values import Dim, Value

MOST_ITERATIONS, MOST_NODES = 64, 2_000
"""The most iterations, and the most nodes after unrolling, with which a loop is unrolled."""

_FOREVER = np.iinfo(np.int64).max
_OWN = "\0carried"
"""Begins names of values that only a repetition uses: no name of ONNX has this character."""


@dataclass(frozen=True, slots=True)
class IterationStep:
    """The results of one iteration."""

    condition: Value
    """One element: whether another iteration follows. It is known to be true where the number is known before."""
    carried: Sequence[Value]
    """The carried values for the next iteration."""
    scanned: Sequence[Value]
    """The values that are stacked over all iterations."""


Body = Callable[[Any, Value, Sequence[Value]], IterationStep]
"""Emits an iteration: the scope, the number of the iteration (int64 scalar), and the carried values."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """A body, and the values that it reads from the graph around it."""

    importer: Any
    """The :class:`~.graph.GraphImporter`."""
    scope: Any
    """The :class:`~.graph.GraphScope` around the body."""
    names: Sequence[str]
    """The names of the scope that the body may read."""
    scans: int
    """How many values the body stacks."""
    title: str
    """The name of the function for the body."""
    body: Body

    def results(
        self, count: Value | None, condition: Value | None, initial: Sequence[Value]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        """The carried values after the last iteration, and the stacked values.

        ``count`` is the most iterations (None: no limit), ``condition`` whether there is a first one (None: there is).
        """
        most, starts = known_number(count), known_number(condition)
        if (most is not None and most <= 0) or starts == 0:
            return initial, self._nothing(initial)
        if most is not None and (condition is None or starts) and self._is_short(most, initial):
            return self._unrolled(most, initial)
        return self._looped(0, count, condition, initial)

    # Unrolled

    def _is_short(self, count: int, initial: Sequence[Value]) -> bool:
        if count == 1 or count > MOST_ITERATIONS:
            return count == 1
        before = self.importer.model.converted
        conditions: list[Value] = []
        captured = self._captured(initial, {})
        inside = captured.inside()

        def emit() -> relax.Expr:
            values = inside.values()
            carried = [values[f"{_OWN}{position}"] for position in range(len(initial))]
            conditions.append(self.body(self._inner(values), _count(0), carried).condition)
            return relax.Tuple([])

        self.importer.function("tried", inside.params, emit)
        nodes = (self.importer.model.converted - before) * count
        return nodes <= MOST_NODES and known_number(conditions[0]) is not None

    def _unrolled(self, count: int, initial: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        carried, scanned = initial, []
        for number in range(count):
            scope = replace(self.scope, values=self.scope.values.new_child())
            step = self.body(scope, _count(number), carried)
            carried = step.carried
            scanned.append(step.scanned)
            goes_on = known_number(step.condition)
            if goes_on is None and number + 1 < count:
                left = _count(count - number - 1)
                carried, more = self._looped(number + 1, left, step.condition, carried)
                return carried, [
                    self._joined(*pair) for pair in zip(self._stacked(scanned), more, strict=True)
                ]
            if goes_on == 0:
                break
        return carried, self._stacked(scanned)

    def _stacked(self, scanned: Sequence[Sequence[Value]]) -> list[Value]:
        return [self._stack([values[n] for values in scanned]) for n in range(self.scans)]

    def _stack(self, values: Sequence[Value]) -> Value:
        known = [value.known for value in values if value.known is not None]
        if len(known) == len(values):
            return Value.of(np.stack(known), values[0].dtype)
        rows = [self.importer.emit(relax.op.expand_dims(self._tensor(value), [0])) for value in values]
        joined = rows[0] if len(rows) == 1 else self.importer.emit(relax.op.concat(rows, 0))
        return Value(values[0].dtype, expr=joined)

    def _joined(self, first: Value, second: Value) -> Value:
        both = relax.op.concat([self._tensor(first), self._tensor(second)], 0)
        return Value(first.dtype, expr=self.importer.emit(both))

    # Looped

    def _looped(
        self, first: int, count: Value | None, condition: Value | None, initial: Sequence[Value]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        form, iteration = self._settled(initial)
        turns = add_recursion(self.importer, form, iteration, self.title)
        begin = [self._tensor(initial[position]) for position in form.positions]
        limit = _count(_FOREVER) if count is None else count
        arguments = [self._tensor(_count(first)), scalar(self.importer, limit), *begin]
        arguments += form.captured.arguments()
        result: relax.Expr = relax.Call(turns, arguments)
        starts = self._starts(count, condition)
        if starts is not None:
            nothing = add_nothing(self.importer, form, self.title)
            result = relax.If(starts, result, relax.Call(nothing, arguments))
        length = self._length(count, condition, form)
        dims = [known.dims for known in form.carried.values()]
        rows = [[length, *known.dims] for known in form.scanned]
        _, ended, scanned = form.parts(self.importer, result, dims, rows)
        carried = list(initial)
        for position, var in zip(form.positions, ended, strict=True):
            carried[position] = Value(initial[position].dtype, expr=var)
        return carried, [
            Value(known.dtype, expr=var) for known, var in zip(form.scanned, scanned, strict=True)
        ]

    def _starts(self, count: Value | None, condition: Value | None) -> relax.Expr | None:
        """Whether there is a first iteration; None: there certainly is."""
        parts: list[relax.Expr] = []
        if condition is not None and known_number(condition) is None:
            parts.append(scalar(self.importer, condition))
        if count is not None and known_number(count) is None:
            zero = relax.const(0, "int64")
            parts.append(self.importer.emit(relax.op.greater(scalar(self.importer, count), zero)))
        if len(parts) == 2:
            return self.importer.emit(relax.op.logical_and(*parts))
        return parts[0] if parts else None

    def _length(self, count: Value | None, condition: Value | None, form: Form) -> Dim | None:
        """The number of iterations; None where only the data decide it."""
        if form.stops or count is None or count.known is None:
            return None
        if condition is not None and not known_number(condition):
            return None
        number = count.known.reshape(-1)[0]
        return (int(number) if count.numbers is not None else number) if is_nonnegative(number) else None

    def _settled(self, initial: Sequence[Value]) -> tuple[Form, GlobalVar]:
        """The function for one iteration, with parameters that fit all iterations.

        At first every carried value is taken to keep what it has before the first iteration. One that the body changes
        becomes a parameter. A dimension of it that the body changes gets a size of its own. This repeats until nothing
        changes.
        """
        carried: dict[int, list[Dim | None]] = {}
        while True:
            form, iteration, changed = self._attempted(initial, carried)
            if changed == carried:
                return form, iteration
            carried = changed

    def _attempted(
        self, initial: Sequence[Value], carried: Mapping[int, list[Dim | None]]
    ) -> tuple[Form, GlobalVar, dict[int, list[Dim | None]]]:
        captured = self._captured(initial, carried)
        inside = captured.inside()
        fresh = self.importer.fresh_size
        index = relax.Var("index", relax.TensorType([], "int64"))
        params = {
            position: inside.parameter(f"carried_{position}", initial[position].dtype, dims, fresh)
            for position, dims in carried.items()
        }
        steps: list[tuple[IterationStep, list[Value]]] = []

        def emit() -> relax.Expr:
            values = inside.values()
            given = [
                Value(value.dtype, expr=params[position])
                if position in params
                else values[f"{_OWN}{position}"]
                for position, value in enumerate(initial)
            ]
            step = self.body(self._inner(values), Value("int64", expr=index), given)
            steps.append((step, given))
            return self._returned(step, params)

        iteration = self.importer.function(
            f"{self.title}_body", [index, *params.values(), *inside.params], emit
        )
        step, given = steps[0]
        form = Form(
            captured,
            {position: TensorForm(initial[position].dtype, dims) for position, dims in carried.items()},
            [TensorForm(value.dtype, inside.seen_outside(value.shape)) for value in step.scanned],
            stops=known_number(step.condition) != 1,
        )
        return form, iteration, self._changed(initial, carried, given, step.carried, inside)

    def _returned(self, step: IterationStep, params: Mapping[int, relax.Var]) -> relax.Expr:
        stops = [] if known_number(step.condition) == 1 else [scalar(self.importer, step.condition)]
        ended = [self._tensor(step.carried[position]) for position in params]
        rows = [self._stack([value]) for value in step.scanned]
        return relax.Tuple([*stops, *ended, *map(self._tensor, rows)])

    def _changed(
        self,
        initial: Sequence[Value],
        carried: Mapping[int, list[Dim | None]],
        given: Sequence[Value],
        ended: Sequence[Value],
        inside: Inside,
    ) -> dict[int, list[Dim | None]]:
        """The sizes of all carried values that the body changes; None for those that it changes."""
        found: dict[int, list[Dim | None]] = {}
        for position, (before, after) in enumerate(zip(given, ended, strict=True)):
            if position not in carried and _is_same(before, after):
                continue
            what = f"the value number {position} that it hands from iteration to iteration"
            if before.dtype != after.dtype:
                raise NodeRefused(f"{what} is {before.dtype} before and {after.dtype} after an iteration")
            if before.rank != after.rank:
                raise NodeRefused(
                    f"{what} has {before.rank} dimensions before and {after.rank} after an iteration"
                )
            sizes = carried.get(position, initial[position].shape)
            found[position] = [
                old if old is not None and new is not None and are_equal(old, new) else None
                for old, new in zip(sizes, inside.seen_outside(after.shape), strict=True)
            ]
        return found

    # No iteration

    def _nothing(self, initial: Sequence[Value]) -> list[Value]:
        if not self.scans:
            return []
        form, _ = self._settled(initial)
        return [self._empty(scanned) for scanned in form.scanned]

    def _empty(self, scanned: TensorForm) -> Value:
        return Value(scanned.dtype, expr=self.importer.emit(no_rows(scanned, scanned.dims)))

    # Helpers

    def _captured(self, initial: Sequence[Value], carried: Mapping[int, Any]) -> Captured:
        kept = {f"{_OWN}{n}": value for n, value in enumerate(initial) if n not in carried}
        named = {name: self.scope.values[name] for name in self.names if name in self.scope.values}
        return Captured.of({**named, **kept}, [initial[position] for position in carried])

    def _inner(self, values: dict[str, Value]) -> Any:
        return replace(self.scope, values=ChainMap(values))

    def _tensor(self, value: Value) -> relax.Expr:
        return value.tensor(self.importer.builder)


def known_number(value: Value | None) -> int | None:
    """The only element of a value, if it is known."""
    if value is None or value.numbers is None:
        return None
    if value.numbers.size != 1:
        raise NodeRefused(f"a limit or condition of it has {value.numbers.size} elements, not one")
    return int(value.numbers.reshape(-1)[0])


def scalar(importer: Any, value: Value) -> relax.Expr:
    """A tensor of one element as a scalar tensor."""
    if value.rank == 0:
        return value.tensor(importer.builder)
    if value.numbers is not None:
        return Value.of(value.numbers.reshape(())).tensor(importer.builder)
    expr = value.tensor(importer.builder)
    if not all(dim == 1 for dim in value.shape if isinstance(dim, int)):
        raise NodeRefused(
            f"a limit or condition of it has the shape ({', '.join(map(str, value.shape))}), not one element"
        )
    ones = relax.TensorType([1] * value.rank, value.dtype)
    if not all(isinstance(dim, int) for dim in value.shape):
        expr = importer.builder.match_cast(expr, ones)
    return importer.emit(relax.op.reshape(expr, ()))


def _count(number: int) -> Value:
    return Value.of(np.array(number, np.int64))


def _is_same(before: Value, after: Value) -> bool:
    """Whether an iteration leaves a value as it is."""
    if before is after or (
        before.expr is not None and after.expr is not None and before.expr.same_as(after.expr)
    ):
        return True
    return are_known_equal(before, after)


def are_known_equal(first: Value, second: Value) -> bool:
    """Whether two values are known to be the same, bit by bit."""
    a, b = first.numbers, second.numbers
    if a is None or b is None or (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    return a.tobytes() == b.tobytes()
