"""The rewriting of whole networks: operators that are safe in 16 bits read and write 16 bits, all others are between
casts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import ir, relax
from tvm.relax import Expr

from ..layout.calls import changed
from .between import variables_in
from .numbers import is_number, is_too_large, is_too_small, limits, narrow_constant
from .operators import ADDITIVE, is_float32, is_safe, is_table, name_of
from .rewrite import SHORT, why_not_product, with_new_blocks


def rewritten_whole(func: relax.Function, dtype: str) -> relax.Function:
    """The function with its products and all that is safe in ``dtype``, or itself when it has no product."""
    blocks = list(func.body.blocks)
    if not any(why_not_product(each.value) is None for block in blocks for each in block.bindings):
        return func
    return with_new_blocks(func, [_rewritten_block(block, dtype) for block in blocks])


def _rewritten_block(block: relax.BindingBlock, dtype: str) -> relax.BindingBlock:
    """Only dataflow blocks are rewritten: outside of them order matters."""
    if not isinstance(block, relax.DataflowBlock):
        return block
    state = _Block(dtype)
    for binding in block.bindings:
        state.add(binding)
    return relax.DataflowBlock(state.bindings)


class _Block:
    """Values in their two forms, by the variables and constants of the original program."""

    def __init__(self, dtype: str) -> None:
        self.bindings: list[relax.Binding] = []
        self.dtype = dtype
        self.narrow: dict[Expr, Expr] = {}
        """The narrow form of a value, where it has one."""
        self.only_narrow: dict[Expr, None] = {}
        """Variables without a float32 form."""
        self.beyond: dict[Expr, None] = {}
        """float32 variables that may exceed the range of the narrow type, because a constant in them does."""
        self._builder = relax.BlockBuilder()

    def add(self, binding: relax.Binding) -> None:
        """The binding in its new form."""
        var, value = binding.var, binding.value
        if isinstance(binding, relax.MatchCast):
            self.bindings.append(relax.MatchCast(var, self._wide(value), binding.ty))
        elif isinstance(value, relax.Call) and why_not_product(value) is None and not self._is_unfit(value):
            self._add_product(var, value)
        elif isinstance(value, relax.TupleGetItem) and value.tuple_value in self.only_narrow:
            self._add_narrow(var, relax.TupleGetItem(self.narrow[value.tuple_value], value.index))
        elif isinstance(value, relax.Call) and self._goes_narrow(var, value):
            self._add_narrow(var, changed(value, [self._narrow(arg) for arg in value.args]))
        else:
            if any(map(self._is_beyond, _leaves(value))):
                self.beyond[var] = None
            self.bindings.append(relax.VarBinding(var, self._with_wide_operands(value)))

    # What is narrow

    def _goes_narrow(self, var: relax.Var, value: relax.Call) -> bool:
        """Whether an operator is safe, and reads a value that is narrow already or a table that can be."""
        if not is_safe(value) or not is_float32(var):
            return False
        reads = any(operand in self.only_narrow for operand in variables_in(value))
        return (reads or is_table(value)) and not self._is_unfit(value)

    def _is_unfit(self, value: relax.Call) -> bool:
        """Whether a constant loses its value in the narrow type, so that the operator stays float32."""
        constants = [
            leaf for leaf in _leaves(value) if isinstance(leaf, ir.GenericConst) and is_float32(leaf)
        ]
        adds = name_of(value) in ADDITIVE
        counting = [each for each in constants if not adds or is_number(each)]  # a tiny bias: no epsilon
        if any(is_too_small(constant, self.dtype) for constant in counting):
            return True
        if any(abs(number) > limits(self.dtype)[0] for number in _written(value)):
            return True
        return not adds and any(is_too_large(each, self.dtype) for each in constants)

    def _is_beyond(self, leaf: Expr) -> bool:
        if isinstance(leaf, ir.GenericConst):
            return is_float32(leaf) and is_too_large(leaf, self.dtype)
        return leaf in self.beyond

    def _add_product(self, var: relax.Var, value: relax.Call) -> None:
        """A product writes what its readers read; a result of the block is float32 at once."""
        args = [self._narrow(arg) for arg in value.args]
        if isinstance(var, relax.DataflowVar):
            self._add_narrow(var, changed(value, args, out_dtype=self.dtype))
        else:
            self.bindings.append(
                relax.VarBinding(var, self._typed(changed(value, args, out_dtype="float32")))
            )

    def _add_narrow(self, var: relax.Var, value: Expr) -> None:
        self.narrow[var] = self._emit(value, var.name)
        if isinstance(var, relax.DataflowVar):
            self.only_narrow[var] = None
        else:
            self.bindings.append(relax.VarBinding(var, self._widened(self.narrow[var])))

    def _narrow(self, expr: Expr) -> Expr:
        """An operand in the narrow type, cast once; what is not float32 stays as it is."""
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._narrow(field) for field in expr.fields])
        if not isinstance(expr, (relax.Var, ir.GenericConst)) or not is_float32(expr):
            return expr
        if expr not in self.narrow:
            self.narrow[expr] = self._narrowed(expr)
        return self.narrow[expr]

    def _narrowed(self, expr: relax.Var | ir.GenericConst) -> Expr:
        if isinstance(expr, ir.GenericConst):
            return narrow_constant(expr, self.dtype)
        if isinstance(expr.ty, relax.TupleType):
            parts = [self._emit(relax.TupleGetItem(expr, i), expr.name) for i in range(len(expr.ty.fields))]
            return relax.Tuple([self._emit(relax.op.astype(part, self.dtype), part.name) for part in parts])
        inside: Expr = expr
        if expr in self.beyond:
            largest, _ = limits(self.dtype)
            inside = self._emit(relax.op.clip(expr, -largest, largest), f"{expr.name}_inside")
        return self._emit(relax.op.astype(inside, self.dtype), f"{expr.name}_{SHORT[self.dtype]}")

    # What is wide

    def _wide(self, expr: Expr) -> Expr:
        """An operand in float32: as it was computed, else widened for this reader alone."""
        if isinstance(expr, relax.Tuple):
            fields = [self._wide(field) for field in expr.fields]
            same = all(new.same_as(old) for new, old in zip(fields, expr.fields, strict=True))
            return expr if same else relax.Tuple(fields)
        if expr not in self.only_narrow:
            return expr
        wide, name = self._widened(self.narrow[expr]), getattr(expr, "name", "wide")
        return wide if isinstance(wide, relax.Tuple) else self._emit(wide, f"{name}_f32")

    def _widened(self, narrow: Expr) -> Expr:
        if isinstance(narrow.ty, relax.TupleType):
            parts = [self._emit(relax.TupleGetItem(narrow, i), "part") for i in range(len(narrow.ty.fields))]
            return relax.Tuple([self._emit(relax.op.astype(part, "float32"), "part_f32") for part in parts])
        return self._typed(relax.op.astype(narrow, "float32"))

    def _with_wide_operands(self, value: Expr) -> Expr:
        if isinstance(value, relax.Call):
            args = [self._wide(arg) for arg in value.args]
            if all(new.same_as(old) for new, old in zip(args, value.args, strict=True)):
                return value
            return relax.Call(value.op, args, value.attrs, value.ty_args, value.span, value.ty)
        return self._wide(value) if isinstance(value, (relax.Var, relax.Tuple)) else value

    # Emission

    def _typed(self, expr: Expr) -> Expr:
        return self._builder.normalize(expr)

    def _emit(self, expr: Expr, name: str) -> relax.Var:
        expr = self._typed(expr)
        var = relax.DataflowVar(name, expr.ty)
        self.bindings.append(relax.VarBinding(var, expr))
        return var


def _written(value: relax.Call) -> list[float]:
    """The bounds of a clip, or what a pad puts around its operand."""
    if name_of(value) == "nn.pad":
        return [float(value.attrs.pad_value)]
    bounds: list[Any] = list(value.args[1:]) if name_of(value) == "clip" else []
    return [float(getattr(bound, "value", 0.0)) for bound in bounds]


def _leaves(value: Expr) -> Iterator[Expr]:
    """The variables and constants that a binding's value reads."""
    operands = [value]
    if isinstance(value, relax.Call):
        operands = list(value.args)
    for operand in operands:
        yield from operand.fields if isinstance(operand, relax.Tuple) else [operand]
