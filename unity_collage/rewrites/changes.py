"""What the driver respects where a function changes memory in place: a rule reads backwards, but not past a write.

Behind a write, a definition that reads the changed memory is outdated: computed there, it has another value. Memory
that is changed anywhere in the function keeps its owners: it does not become a constant or the memory of another value.
"""

from __future__ import annotations

from collections import defaultdict

from tvm import relax
from tvm.ir import IRModule

from ..graph.calls import bindings_in
from ..graph.in_place import IN_PLACE, MemoryOwners, changed_operands, changed_params
from .bindings import operands
from .scope import Expr, op_name

_Vars = frozenset[relax.Var]


class Changes:
    """The memory that a function changes in place, for one sweep over its bindings in order.

    Its branches change memory too, and so do the functions of ``mod`` that it calls.
    """

    def __init__(self, func: relax.Function, mod: IRModule | None):
        bindings = list(bindings_in(func.body))
        self._called = changed_params(func, mod)
        self._memory = MemoryOwners(bindings)
        changed = (var for binding in bindings for var in self._operands(binding.value))
        self._changed = {owner for var in changed for owner in self._memory.of(var)}
        self._readers: defaultdict[relax.Var, list[relax.Var]] = defaultdict(list)

    def may_replace(self, old: Expr, new: Expr, var: relax.Var | None) -> bool:
        """Whether ``new`` may stand for ``old``, which ``var`` is bound to, if it has a variable already."""
        if not self._changed:
            return True
        if op_name(old) in IN_PLACE or self._operands(old) or self._is_new_and_changed(old, var):
            return False
        return self._shared(old) == self._shared(new)

    def may_be_one(self, value: Expr, var: relax.Var | None) -> bool:
        """Whether an equal value that was computed before may stand for ``value``."""
        return not self._changed or not (self._is_new_and_changed(value, var) or self._shared(value))

    def bind(self, var: relax.Var, value: Expr) -> list[relax.Var]:
        """Record a binding. The result is the earlier variables whose definitions it makes outdated."""
        if not self._changed:
            return []
        changed = {owner for operand in self._operands(value) for owner in self._memory.of(operand)}
        outdated = [reader for owner in changed for reader in self._readers.pop(owner, ())]
        self._memory.bind(var, value)
        for operand in (var, *operands(value)):
            for owner in self._memory.of(operand) & self._changed:
                self._readers[owner].append(var)
        return outdated

    def rename(self, var: relax.Var, new: relax.Var) -> None:
        """``new`` is bound in place of ``var``."""
        if var in self._changed:
            self._changed.add(new)

    def _operands(self, value: Expr) -> tuple[relax.Var, ...]:
        """The variables whose memory ``value`` changes."""
        return changed_operands(value, self._called)

    def _is_new_and_changed(self, value: Expr, var: relax.Var | None) -> bool:
        """Whether ``value`` is the first value of memory that is changed."""
        return var in self._changed and not self._memory.of_value(value)

    def _shared(self, value: Expr) -> _Vars:
        """The owners of changed memory that ``value`` shares."""
        return self._memory.of_value(value) & self._changed
