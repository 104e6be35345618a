"""Sizes that are not numbers: sympy expressions of ``torch.export`` as expressions of TVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PowByNatural, PythonMod
from tvm import tirx

from ...errors import ModelError
from ..renaming import renamed

Size = Any
"""An int, or an expression of TVM."""


class LearntSizes:
    """The symbols of one program: variables of TVM, or numbers once they are known."""

    def __init__(self) -> None:
        self._known: dict[str, Size] = {}
        self._multiples: dict[str, tirx.Var] = {}

    def declare(self, size: int | torch.SymInt) -> Size:
        """A size that the program reads when it runs; a symbol that is not known yet becomes a variable."""
        if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
            symbol = str(size.node.expr)
            self._known.setdefault(symbol, tirx.Var(symbol, "int64"))
        return self.of(size)

    def declare_inputs(self, shapes: Sequence[Sequence[int | torch.SymInt]]) -> list[list[Size]]:
        """The shapes of all inputs. An axis of size ``32*h`` is the variable ``h_by_32``, if no axis has size h."""
        for shape in shapes:
            for size in shape:
                if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                    self.declare(size)
        return [[self._of_axis(size) for size in shape] for shape in shapes]

    def _of_axis(self, size: int | torch.SymInt) -> Size:
        expr = size.node.expr if isinstance(size, torch.SymInt) else None
        if str(expr) in self._multiples:
            return self._multiples[str(expr)]
        if expr is None or all(str(symbol) in self._known for symbol in expr.free_symbols):
            return self.of(size)
        factor, symbol = expr.as_coeff_Mul()
        if not isinstance(symbol, sympy.Symbol):
            raise ModelError(
                f"this model cannot be imported: an input has an axis of size {expr}; give it a dimension of its own"
            )
        whole = self._multiples[str(expr)] = tirx.Var(f"{symbol}_by_{factor}", "int64")
        self._known[str(symbol)] = tirx.floordiv(whole, int(factor))
        return whole

    def learn(self, size: object, value: int) -> None:
        """``size`` is ``value``: it was computed from constants."""
        if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
            self._known[str(size.node.expr)] = value

    def learn_shape(self, tensor: torch.Tensor, shape: Sequence[Size]) -> None:
        """Record that a converter found ``shape`` for a value; torch has symbols for sizes that it could not know."""
        for size, found in zip(tensor.shape, shape, strict=False):
            if (
                isinstance(size, torch.SymInt)
                and isinstance(found, int)
                and str(size.node.expr) not in self._known
            ):
                self.learn(size, found)

    def met(self, size: int | torch.SymInt) -> Size | None:
        """``size`` of a result that the program reads when it runs; a new symbol becomes a variable.

        None for an expression of symbols without a value.
        """
        if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
            return self.declare(size)
        try:
            return self.of(size)
        except ModelError:
            return None

    def of(self, size: int | torch.SymInt) -> Size:
        """``size`` as an int or an expression; raises ModelError if it depends on values."""
        return int(size) if isinstance(size, int) else _expression(size.node.expr, self._known)

    def variables(self) -> list[tirx.Var]:
        """The sizes that are variables of the function that is emitted."""
        found = (each for each in self._known.values() if isinstance(each, tirx.Var))
        return list(dict.fromkeys([*found, *self._multiples.values()]))

    @contextmanager
    def renamed(self, names: Mapping[tirx.Var, tirx.Var]) -> Iterator[None]:
        """Inside another function the variables have other names; what is learnt there holds only there."""
        outside, multiples = self._known, self._multiples
        self._known = {symbol: renamed(size, names) for symbol, size in outside.items()}
        self._multiples = {text: names.get(var, var) for text, var in multiples.items()}
        try:
            yield
        finally:
            self._known, self._multiples = outside, multiples

    def shape(self, tensor: torch.Tensor) -> list[Size]:
        """The shape of a value, as torch knows it."""
        return [self.of(size) for size in tensor.shape]


def _expression(expr: Any, known: Mapping[str, Size]) -> Size:
    """``expr`` in terms of the ``known`` symbols."""
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Symbol):
        if str(expr) not in known:
            raise ModelError(
                "this model cannot be imported: a shape depends on the values of a tensor (as after nonzero, item or a "
                "boolean index)"
            )
        return known[str(expr)]
    operands = [_expression(arg, known) for arg in expr.args]
    for kind, function in _FUNCTIONS.items():
        if isinstance(expr, kind):
            return reduce(function, operands)
    if isinstance(expr, (sympy.Pow, PowByNatural)) and isinstance(operands[1], int) and operands[1] > 0:
        return reduce(lambda a, b: a * b, [operands[0]] * operands[1])
    raise ModelError(f"this model cannot be imported: its shapes have the expression {expr}")


def _smallest(a: Size, b: Size) -> Size:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else tirx.min(a, b)


def _largest(a: Size, b: Size) -> Size:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else tirx.max(a, b)


_FUNCTIONS: Mapping[Any, Any] = {
    sympy.Add: lambda a, b: a + b,
    sympy.Mul: lambda a, b: a * b,
    FloorDiv: lambda a, b: a // b,
    Mod: lambda a, b: a % b,
    PythonMod: lambda a, b: a % b,
    sympy.Min: _smallest,
    sympy.Max: _largest,
    Min: _smallest,
    Max: _largest,
}
