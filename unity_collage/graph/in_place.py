"""Bindings that change an operand in place: all earlier readers of that memory come before them.

Relax orders such calls by their place in the block only. A pass that moves bindings needs the order as edges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tvm import relax

from .calls import op_name

IN_PLACE = {"relax.call_tir_inplace": None, "relax.call_inplace_packed": 1}
"""The operators that write to operands, with the place of the first operand; None: the operands are one tuple."""

VIEWS = (
    "relax.reshape",
    "relax.expand_dims",
    "relax.squeeze",
    "relax.flatten",
    "relax.memory.view",
    "relax.memory.ensure_zero_offset",
    "relax.builtin.stop_lift_params",
)
"""Operators with a result that may share the memory of their operand."""

UsedVars = Callable[[relax.Expr], Iterable[relax.Var]]


def changed_readers(
    func: relax.Function, bindings: Sequence[relax.Binding], used_vars: UsedVars
) -> dict[relax.Var, tuple[relax.Var, ...]]:
    """For each binding of a block that changes memory, the earlier ones that read this memory."""
    changes = {binding.var: changed_operands(binding.value) for binding in bindings}
    if not any(changes.values()):
        return {}
    memory = MemoryOwners(binding for block in func.body.blocks for binding in block.bindings)
    found: dict[relax.Var, tuple[relax.Var, ...]] = {}
    readers: defaultdict[relax.Var, list[int]] = defaultdict(list)
    for number, binding in enumerate(bindings):
        changed = {owner for var in changes[binding.var] for owner in memory.of(var)}
        if changed:
            earlier = sorted({reader for owner in changed for reader in readers[owner]})
            found[binding.var] = tuple(bindings[reader].var for reader in earlier)
        for owner in {owner for var in used_vars(binding.value) for owner in memory.of(var)}:
            readers[owner].append(number)
    return found


def changed_operands(value: relax.Expr) -> tuple[relax.Var, ...]:
    """The variables whose memory ``value`` writes to."""
    name = op_name(value)
    if name not in IN_PLACE:
        return ()
    assert isinstance(value, relax.Call)
    first = IN_PLACE[name]
    args: Any = value.args
    operands: list[relax.Expr] = list(args[1].fields if first is None else args[first:])
    places = [int(place) for place in value.attrs.inplace_indices]
    return tuple(var for i in places if i >= 0 and isinstance(var := operands[i], relax.Var))


class MemoryOwners:
    """The variables that own the memory of each variable."""

    def __init__(self, bindings: Iterable[relax.Binding]):
        self._owners: dict[relax.Var, frozenset[relax.Var]] = {}
        for binding in bindings:
            self.bind(binding.var, binding.value)

    def bind(self, var: relax.Var, value: relax.Expr) -> None:
        """Record what ``var`` is bound to."""
        owners = self.of_value(value)
        if owners:
            self._owners[var] = owners

    def of(self, var: relax.Var) -> frozenset[relax.Var]:
        """The owners of the memory of ``var``: itself, or the variables that it is a view, part or other name of."""
        return self._owners.get(var, frozenset((var,)))

    def of_value(self, value: relax.Expr) -> frozenset[relax.Var]:
        """The owners of the memory that ``value`` may share; none where its memory is new, or it is a constant."""
        return frozenset(owner for var in _shared(value) for owner in self.of(var))


class ChangedMemory:
    """The memory that some binding of a function changes in place, also in a branch or in a function inside it."""

    def __init__(self, func: relax.Function):
        bindings = list(_bindings(func.body))
        self._memory = MemoryOwners(bindings)
        changed = (var for binding in bindings for var in changed_operands(binding.value))
        self._changed = frozenset(owner for var in changed for owner in self._memory.of(var))

    def has(self, var: relax.Var) -> bool:
        """Whether the memory of ``var`` is changed."""
        return bool(self._changed) and not self._changed.isdisjoint(self._memory.of(var))


def _bindings(body: relax.Expr) -> Iterator[relax.Binding]:
    if not isinstance(body, relax.SeqExpr):
        return
    for binding in (binding for block in body.blocks for binding in block.bindings):
        yield binding
        value = binding.value
        if isinstance(value, relax.If):
            yield from _bindings(value.true_branch)
            yield from _bindings(value.false_branch)
        elif isinstance(value, relax.Function):
            yield from _bindings(value.body)


def _shared(value: relax.Expr) -> Iterator[relax.Var]:
    """The variables whose memory ``value`` may share."""
    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from _shared(field)
    elif isinstance(value, relax.TupleGetItem):
        yield from _shared(value.tuple_value)
    elif op_name(value) in VIEWS:
        assert isinstance(value, relax.Call)
        yield from _shared(value.args[0])
    else:
        yield from changed_operands(value)
