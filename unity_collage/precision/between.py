"""Finds values between two products: storing these in fewer bits pays off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm import relax
from tvm.relax import Expr

from .operators import Role, is_float32, role_of


@dataclass(frozen=True, slots=True)
class Uses:
    """The values of one block, by the products and readers that they are between."""

    readers: dict[relax.Var, list[Expr]]
    """The values of the bindings that read a variable, once for each time."""
    between: frozenset[relax.Var]
    """The values that are computed from one product and read, directly or not, by another."""
    order: dict[relax.Var, int]
    """When a variable is bound."""

    def stays_wide(self, var: relax.Var) -> bool:
        """Whether no kernel stores ``var``: it is not between products, or its only reader can keep it in a register.

        A reader can keep one operand in a register: the last, since the others are computed before.
        """
        if var not in self.between:
            return True
        readers = self.readers.get(var, [])
        if len(readers) != 1 or role_of(readers[0]) is not Role.FUSING:
            return False
        return var == max(self.between.intersection(variables_in(readers[0])), key=self.order.__getitem__)


def uses_of(bindings: Sequence[relax.Binding]) -> Uses:
    """Readers and products of one dataflow block."""
    readers: dict[relax.Var, list[Expr]] = {}
    after: set[relax.Var] = set()
    for binding in bindings:
        operands = list(variables_in(binding.value))
        for var in operands:
            readers.setdefault(var, []).append(binding.value)
        if role_of(binding.value) is Role.PRODUCT or not after.isdisjoint(operands):
            after.add(binding.var)
    before: set[relax.Var] = set()
    for binding in reversed(bindings):
        if role_of(binding.value) is Role.PRODUCT or binding.var in before:
            before.update(variables_in(binding.value))
    between = frozenset(var for var in after & before if is_float32(var))
    return Uses(readers, between, {binding.var: at for at, binding in enumerate(bindings)})


def variables_in(value: Expr) -> Iterator[relax.Var]:
    """The variables that a binding's value reads, once for each time."""
    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from variables_in(field)
    elif isinstance(value, relax.TupleGetItem):
        yield from variables_in(value.tuple_value)
    elif isinstance(value, relax.Call):
        for arg in value.args:
            yield from variables_in(arg)
