"""One dataflow block being rewritten: the new forms of its values, and the bindings that compute them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.relax import Expr

from ..graph.shapes import dtype_of, ints, tensor_type
from .axes import Layout, change, padded, plain, same_order, unpadded
from .values import Pack, Tensor, Value, fresh, projections

_RESHAPE = ir.Op.get("relax.reshape")


class Block:
    """Emits bindings, and makes other forms of a value only on demand."""

    def __init__(self) -> None:
        self.bindings: list[relax.Binding] = []
        self.values: dict[Expr, Value] = {}
        self.var: relax.Var = relax.DataflowVar("none", relax.TupleType([]))
        """The variable of the original binding that is being translated."""
        self._builder = relax.BlockBuilder()
        self._reshaped_from: dict[Expr, Expr] = {}

    # What operands are

    def value(self, expr: Expr) -> Value:
        """The new form of an operand of the original program."""
        if isinstance(expr, relax.Tuple):
            return Pack([self.value(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return self.field(self.value(expr.tuple_value), expr.index) or fresh(expr)
        if not isinstance(expr, (relax.Var, ir.GenericConst)):
            return fresh(expr)
        if expr not in self.values:
            self.values[expr] = fresh(expr, name=getattr(expr, "name", "constant"))
        return self.values[expr]

    def tensor(self, expr: Expr) -> Tensor | None:
        """The tensor that an operand is, or None when it is something else."""
        value = self.value(expr)
        return value if isinstance(value, Tensor) else None

    def tensors(self, expr: Expr) -> list[Tensor]:
        """The fields of a tuple operand, or nothing when they are not all tensors."""
        value = self.value(expr)
        fields = value.fields if isinstance(value, Pack) else []
        return [field for field in fields if isinstance(field, Tensor)] if _all_tensors(fields) else []

    @staticmethod
    def field(value: Value, index: int) -> Value | None:
        """A field of a tuple, or None when its fields are not known."""
        return value.fields[index] if isinstance(value, Pack) and value.fields else None

    # Forms of a value

    def plain(self, value: Value) -> Expr:
        """The value as the original program has it."""
        if isinstance(value, Tensor):
            return self.form(value, plain(value.rank))
        if value.whole is None:
            return relax.Tuple([self.plain(field) for field in value.fields])
        return value.whole

    def operand(self, expr: Expr) -> Expr:
        """An operand of the original program in its original layout, the same object when nothing changed."""
        if not isinstance(expr, relax.Tuple):
            return self.plain(self.value(expr))
        fields = [self.operand(field) for field in expr.fields]
        return expr if all_same(fields, expr.fields) else relax.Tuple(fields)

    def form(self, tensor: Tensor, layout: Layout) -> Expr:
        """The tensor in a layout: an existing form, else a reshape if only unit axes move, else a permutation."""
        for forms in (tensor.forms, tensor.views):
            if layout in forms:
                return self._bound(tensor, forms, layout)
        tensor.forms[layout] = self._made(tensor, layout)
        return tensor.forms[layout]

    def _bound(self, tensor: Tensor, forms: dict[Layout, Expr], layout: Layout) -> Expr:
        if isinstance(forms[layout], relax.TupleGetItem):
            forms[layout] = self.emit(forms[layout], tensor.name)
        return forms[layout]

    def _made(self, tensor: Tensor, layout: Layout) -> Expr:
        name = f"{tensor.name}_{''.join(map(str, layout))}"
        if (constant := tensor.constant) is not None:
            return _permuted_constant(constant, layout)
        source = self.free_source(tensor, layout)
        if source is not None:
            extents = tensor.extents or []
            return self.reshape(self.form(tensor, source), [extents[axis] for axis in layout], name)
        axes = change(tensor.native, layout)
        return self.emit(relax.op.permute_dims(self.form(tensor, tensor.native), axes), name)

    @staticmethod
    def free_source(tensor: Tensor, layout: Layout) -> Layout | None:
        """A form from which ``layout`` needs no data to move, or None."""
        existing = (*tensor.forms, *tensor.views)
        return next((form for form in existing if same_order(form, layout, tensor.is_unit)), None)

    def aligned(self, tensor: Tensor, layout: Layout) -> Expr:
        """An operand of a broadcast to a result in ``layout``."""
        rank = len(layout)
        own = unpadded(layout, tensor.rank)
        if tensor.is_single and tensor.rank < rank:
            return self.plain(tensor)
        expr = self.form(tensor, own)
        if padded(own, rank) == layout:
            return expr
        new = rank - tensor.rank
        extents = [tirx.IntImm("int64", 1)] * new + (tensor.extents or [])
        extents = [extents[axis] for axis in layout]
        return self.reshape(expr, extents, f"{tensor.name}_{''.join(map(str, layout))}")

    # Which layout to compute in

    def cheapest(self, tensors: Sequence[Tensor], rank: int) -> Layout:
        """The layout for an operator that can compute in any: where the fewest elements move.

        Candidates are the layouts that its operands have. In a tie a layout that is not plain wins, since an image
        operator is near. If all operands are plain, the result is plain.
        """
        varying = [tensor for tensor in tensors if not tensor.is_constant and not tensor.is_single]
        candidates = [padded(form, rank) for tensor in varying for form in tensor.forms]

        def cost(layout: Layout) -> tuple[int, bool]:
            return sum(self._moved(tensor, layout) for tensor in varying), layout == plain(rank)

        return min(candidates or [plain(rank)], key=cost)

    def _moved(self, tensor: Tensor, layout: Layout) -> int:
        own = unpadded(layout, tensor.rank)
        return 0 if self.free_source(tensor, own) is not None else tensor.weight

    # Emission

    def emit(self, expr: Expr, name: str) -> relax.Var:
        """Bind an expression to a new variable."""
        expr = self._builder.normalize(expr)
        var = relax.DataflowVar(name, expr.ty)
        self.bindings.append(relax.VarBinding(var, expr))
        return var

    def keep(self, binding: relax.Binding) -> Value:
        """Append a binding that keeps the meaning of the original one."""
        self.bindings.append(binding)
        value = binding.value
        if isinstance(value, relax.Call) and value.op.same_as(_RESHAPE):
            self._reshaped_from[binding.var] = self._reshaped_from.get(value.args[0], value.args[0])
        return fresh(binding.var, name=binding.var.name)

    def reshape(self, expr: Expr, extents: Iterable[Expr], name: str) -> Expr:
        """A reshape of the expression, or of its operand if it is a reshape itself; no reshape if the shape is right
        already.
        """
        shape = relax.ShapeExpr(list(extents))
        expr = self._reshaped_from.get(expr, expr)
        if tvm_ffi.structural_equal(tensor_type(expr).shape, shape):
            return expr
        if isinstance(expr, ir.GenericConst):
            return _reshaped_constant(expr, shape)
        var = self.emit(relax.op.reshape(expr, shape), name)
        self._reshaped_from[var] = expr
        return var

    def result(self, expr: Expr, layout: Layout) -> Tensor:
        """Bind the translated call of the current binding, which returns its result in ``layout``."""
        return self.adopt(self.emit(expr, self.var.name), layout)

    def adopt(self, expr: Expr, layout: Layout) -> Tensor:
        """Record ``expr`` as the value of the current binding, in ``layout``."""
        return Tensor(tensor_type(self.var), {layout: expr}, name=self.var.name)

    def opaque(self, expr: Expr) -> Pack:
        """Record ``expr`` as the value of the current binding, which has no layout."""
        return Pack([], whole=expr)

    def results(self, expr: Expr, layouts: Sequence[Layout]) -> Pack:
        """Bind a translated call that returns a tuple, its fields in ``layouts``."""
        assert isinstance(self.var.ty, relax.TupleType)
        whole = self.emit(expr, self.var.name)
        fields = projections(whole, self.var.ty, self.var.name)
        for field, layout in zip(fields, layouts, strict=True):
            if isinstance(field, Tensor):
                field.forms = {layout: next(iter(field.forms.values()))}
        return Pack(fields)


def all_same(new: Iterable[Expr], old: Iterable[Expr]) -> bool:
    """Whether two lists hold the same expressions, by identity."""
    return all(a.same_as(b) for a, b in zip(new, old, strict=True))


def _all_tensors(fields: Sequence[Value]) -> bool:
    return all(isinstance(field, Tensor) for field in fields)


def _permuted_constant(constant: ir.GenericConst, layout: Layout) -> ir.GenericConst:
    array = np.ascontiguousarray(constant.value.numpy().transpose(layout))
    return relax.const(array, dtype_of(constant))


def _reshaped_constant(constant: ir.GenericConst, shape: relax.ShapeExpr) -> ir.GenericConst:
    extents = ints(shape.values)
    assert extents is not None
    return relax.const(constant.value.numpy().reshape(extents), dtype_of(constant))
