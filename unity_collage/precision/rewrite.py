"""The forward rewriting of a dataflow block: products of narrow operands, casts where values are stored."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import ir, relax
from tvm.relax import Expr

from ..layout.calls import changed
from .between import uses_of
from .numbers import narrow_constant
from .operators import SELECTING, Role, is_float32, name_of, role_of


def rewritten(func: relax.Function, dtype: str) -> relax.Function:
    """The function with its products in ``dtype``, or itself when it has none."""
    blocks = [_rewritten_block(block, dtype) for block in func.body.blocks]
    if all(new.same_as(old) for new, old in zip(blocks, func.body.blocks, strict=True)):
        return func
    return with_new_blocks(func, blocks)


def with_new_blocks(func: relax.Function, blocks: Sequence[relax.BindingBlock]) -> relax.Function:
    """The function with other blocks, without unused bindings."""
    body = relax.SeqExpr(blocks, func.body.body)
    made = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)
    return relax.analysis.remove_all_unused(made)


def why_not_product(value: Expr) -> str | None:
    """Why a binding's value is not a product that can be narrowed, or None."""
    if not isinstance(value, relax.Call) or role_of(value) is not Role.PRODUCT:
        return "not a product"
    if not is_float32(value) or not all(map(is_float32, value.args)):
        return "not all of its tensors are float32"
    return None


def _rewritten_block(block: relax.BindingBlock, dtype: str) -> relax.BindingBlock:
    """Only dataflow blocks are rewritten: outside of them order matters."""
    if not isinstance(block, relax.DataflowBlock):
        return block
    if all(why_not_product(binding.value) is not None for binding in block.bindings):
        return block
    state = _Block(block.bindings, dtype)
    for binding in block.bindings:
        state.add(binding)
    return relax.DataflowBlock(state.bindings)


class _Block:
    """Values in their two forms. A value has the form in which it was computed; the other form is made on demand."""

    def __init__(self, bindings: Sequence[relax.Binding], dtype: str) -> None:
        self.bindings: list[relax.Binding] = []
        self.dtype = dtype
        self.uses = uses_of(bindings)
        self.narrow: dict[Expr, Expr] = {}
        """What is stored narrow, by the variable or constant of the original program."""
        self.only_narrow: dict[Expr, None] = {}
        """Variables of the original program that have no float32 form of their own any more."""
        self._builder = relax.BlockBuilder()

    def add(self, binding: relax.Binding) -> None:
        """The binding in its new form."""
        var, value = binding.var, binding.value
        if isinstance(binding, relax.MatchCast):
            self.bindings.append(relax.MatchCast(var, self._wide(value), binding.ty))
        elif isinstance(value, relax.Call) and why_not_product(value) is None:
            args = [self._narrow(arg) for arg in value.args]
            self.bindings.append(
                relax.VarBinding(var, self._typed(changed(value, args, out_dtype="float32")))
            )
        elif self._moves_narrow(var, value):
            self._add_narrow(var, value)
        else:
            self.bindings.append(relax.VarBinding(var, self._with_wide_operands(value)))

    # What is narrow

    def _moves_narrow(self, var: relax.Var, value: Expr) -> bool:
        """Whether an operator that rounds nothing has narrow operands, at least one of them for certain."""
        if isinstance(value, relax.TupleGetItem):
            return value.tuple_value in self.only_narrow
        if not isinstance(value, relax.Call) or not is_float32(var):
            return False
        if role_of(value) is not Role.MOVING and name_of(value) not in SELECTING:
            return False
        fields = _fields(value.args[0])
        return any(map(self._is_stored, fields)) and all(map(is_float32, fields))

    def _is_stored(self, expr: Expr) -> bool:
        """Whether a value is kept narrow between two kernels."""
        if expr in self.only_narrow:
            return True
        return isinstance(expr, relax.Var) and not self.uses.stays_wide(expr)

    def _add_narrow(self, var: relax.Var, value: Expr) -> None:
        if isinstance(value, relax.TupleGetItem):
            made: Expr = relax.TupleGetItem(self.narrow[value.tuple_value], value.index)
        else:
            assert isinstance(value, relax.Call)
            data = value.args[0]
            first = (
                relax.Tuple([self._narrow(field) for field in data.fields])
                if isinstance(data, relax.Tuple)
                else self._narrow(data)
            )
            made = changed(value, [first, *value.args[1:]])
        self.narrow[var] = self._emit(made, var.name)
        if isinstance(var, relax.DataflowVar):
            self.only_narrow[var] = None
        else:
            self.bindings.append(relax.VarBinding(var, self._cast(self.narrow[var], "float32")))

    def _narrow(self, expr: Expr) -> Expr:
        """An operand in the narrow type, cast once."""
        if expr not in self.narrow:
            self.narrow[expr] = self._narrowed(expr)
        return self.narrow[expr]

    def _narrowed(self, expr: Expr) -> Expr:
        if isinstance(expr, ir.GenericConst):
            return narrow_constant(expr, self.dtype)
        assert isinstance(expr, relax.Var)
        return self._emit(self._cast(expr, self.dtype), f"{expr.name}_{SHORT[self.dtype]}")

    # What is wide

    def _wide(self, expr: Expr) -> Expr:
        """An operand in float32: as it was computed if no kernel stores it, else widened for this reader alone."""
        if isinstance(expr, relax.Tuple):
            fields = [self._wide(field) for field in expr.fields]
            same = all(new.same_as(old) for new, old in zip(fields, expr.fields, strict=True))
            return expr if same else relax.Tuple(fields)
        if not isinstance(expr, relax.Var) or not is_float32(expr):
            return expr
        if expr not in self.only_narrow and not (self._is_stored(expr) and _is_tensor(expr)):
            return expr
        if isinstance(expr.ty, relax.TupleType):
            count = len(expr.ty.fields)
            parts = [self._emit(relax.TupleGetItem(self.narrow[expr], i), expr.name) for i in range(count)]
            return relax.Tuple([self._emit(self._cast(part, "float32"), part.name) for part in parts])
        return self._emit(self._cast(self._narrow(expr), "float32"), f"{expr.name}_f32")

    def _with_wide_operands(self, value: Expr) -> Expr:
        if isinstance(value, relax.Call):
            args = [self._wide(arg) for arg in value.args]
            if all(new.same_as(old) for new, old in zip(args, value.args, strict=True)):
                return value
            return relax.Call(value.op, args, value.attrs, value.ty_args, value.span, value.ty)
        if isinstance(value, (relax.Var, relax.Tuple)):
            return self._wide(value)
        return value

    # Emission

    def _cast(self, expr: Expr, dtype: str) -> Expr:
        return self._typed(relax.op.astype(expr, dtype))

    def _typed(self, expr: Expr) -> Expr:
        return self._builder.normalize(expr)

    def _emit(self, expr: Expr, name: str) -> relax.Var:
        expr = self._typed(expr)
        var = relax.DataflowVar(name, expr.ty)
        self.bindings.append(relax.VarBinding(var, expr))
        return var


SHORT = {"bfloat16": "bf16", "float16": "f16"}
"""The name of the narrow form of a variable."""


def _fields(expr: Expr) -> list[Expr]:
    return list(expr.fields) if isinstance(expr, relax.Tuple) else [expr]


def _is_tensor(expr: Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType)
