"""Bindings that change an operand in place: all earlier readers of that memory come before them.

Relax orders such calls by their place in the block only. A pass that moves bindings needs the order as edges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tvm import ir, relax
from tvm.ir import IRModule

from .calls import bindings_in, op_name

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

CHANGES = "collage.changes"
"""Attribute of a function: the functions that it calls and that change parameters, with the numbers of these."""

ChangedParams = Mapping[str, tuple[int, ...]]
"""For functions, by name, the numbers of the parameters whose memory they change."""

NONE: ChangedParams = MappingProxyType({})

_KERNELS = ("Primitive", "Composite", "Codegen")
"""Attributes of functions that are one kernel, which changes no operand."""


def changed_readers(
    func: relax.Function,
    bindings: Sequence[relax.Binding],
    used_vars: UsedVars,
    called: ChangedParams | None = None,
) -> dict[relax.Var, tuple[relax.Var, ...]]:
    """For each binding of a block of ``func`` that changes memory, the earlier ones that read this memory.

    The block may be in a branch. ``called``: what the functions change that ``func`` calls; None: what is noted.
    """
    called = noted(func) if called is None else called
    changes = {binding.var: changed_operands(binding.value, called) for binding in bindings}
    if not any(changes.values()):
        return {}
    memory = MemoryOwners(bindings_in(func.body))
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


def changed_operands(value: relax.Expr, called: ChangedParams = NONE) -> tuple[relax.Var, ...]:
    """The variables whose memory ``value`` writes to, or a function that it calls."""
    if not isinstance(value, relax.Call):
        return ()
    if isinstance(value.op, ir.GlobalVar):
        places = called.get(value.op.name_hint, ())
        return tuple(var for place in places for var in _shared(value.args[place]))
    name = op_name(value)
    if name not in IN_PLACE:
        return ()
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

    def __init__(self, func: relax.Function, called: ChangedParams | None = None):
        """``called``: what the functions change that ``func`` calls; None: what is noted."""
        called = noted(func) if called is None else called
        bindings = list(bindings_in(func.body))
        self._memory = MemoryOwners(bindings)
        changed = (var for binding in bindings for var in changed_operands(binding.value, called))
        self._changed = frozenset(owner for var in changed for owner in self._memory.of(var))

    def __bool__(self) -> bool:
        return bool(self._changed)

    def has(self, var: relax.Var) -> bool:
        """Whether the memory of ``var`` is changed."""
        return bool(self) and not self._changed.isdisjoint(self._memory.of(var))


def noted(func: relax.Function) -> ChangedParams:
    """What the functions change that ``func`` calls, as :func:`with_changes_noted` has written it."""
    found: Any = func.attrs[CHANGES] if CHANGES in (func.attrs or {}) else {}
    return {str(name): tuple(int(place) for place in places) for name, places in found.items()}


def with_changes_noted(func: relax.Function, mod: IRModule) -> relax.Function:
    """``func`` with what the functions of ``mod`` change that it calls, for all that does not know the module."""
    found = changed_params(func, mod)
    if not found:
        return func.without_attr(CHANGES) if CHANGES in (func.attrs or {}) else func
    return func.with_attr(CHANGES, {name: list(places) for name, places in found.items()})


def changed_params(func: relax.Function, mod: IRModule | None) -> ChangedParams:
    """What the functions of ``mod`` change that ``func`` calls, directly or not; empty without a module."""
    inside: dict[str, relax.Function] = {}
    pending = [func] if mod is not None else []
    while pending:
        for binding in bindings_in(pending.pop().body):
            callee = binding.value.op if isinstance(binding.value, relax.Call) else None
            if mod is None or not isinstance(callee, ir.GlobalVar) or callee.name_hint in inside:
                continue
            called = mod.functions.get(callee)
            if isinstance(called, relax.Function) and not _is_kernel(called):
                inside[callee.name_hint] = called
                pending.append(called)
    changed: ChangedParams = NONE
    while (found := _changed_once(inside, changed)) != changed:  # again, for functions that call each other
        changed = found
    return changed


def _changed_once(functions: Mapping[str, relax.Function], called: ChangedParams) -> ChangedParams:
    """The parameters that ``functions`` change if what they call changes those of ``called``."""
    memories = {name: ChangedMemory(func, called) for name, func in functions.items()}
    places = {
        name: tuple(place for place, param in enumerate(func.params) if memories[name].has(param))
        for name, func in functions.items()
    }
    return {name: found for name, found in places.items() if found}


def _is_kernel(func: relax.Function) -> bool:
    return any(name in (func.attrs or {}) for name in _KERNELS)


def _shared(value: relax.Expr) -> Iterator[relax.Var]:
    """The variables whose memory ``value`` may share."""
    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from _shared(field)
    elif isinstance(value, relax.TupleGetItem):
        yield from _shared(value.tuple_value)
    elif isinstance(value, relax.SeqExpr):
        yield from _shared(value.body)
    elif isinstance(value, relax.If):
        yield from _shared(value.true_branch)
        yield from _shared(value.false_branch)
    elif isinstance(value, relax.Call) and op_name(value) in VIEWS:
        yield from _shared(value.args[0])
    else:
        yield from changed_operands(value)
