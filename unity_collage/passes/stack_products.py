"""StackProducts: compute the products of several rows with the same weights as one product.

Reads    the operators; run Prepare before, which makes one ``strided_slice`` of reading a row.
Writes   one ``matmul`` of all the rows, and a ``strided_slice`` of it in place of each product.
Keeps    every type and number, every product of rows in memory that is changed in place, and every function that
         :func:`.channels_last.why_left_alone` names a reason for.

A recurrent network multiplies each step of its input by the same weights, one product for each step. The time of a
product of few rows is the time to read its weights; one product reads them only once (Appleyard et al. 2016,
"Optimizing performance of recurrent neural networks on GPUs").
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..graph.in_place import ChangedMemory, changed_params
from ..rewrites.bindings import map_operands
from ..rewrites.driver import rewrite_function
from ..rewrites.scope import Call, Expr, dtype_of, is_constant, op, op_name, rank_of, static_shape
from ..rewrites.slices import Slice, slice_of
from .channels_last import why_left_alone


@tvm.transform.module_pass(opt_level=0, name="collage.StackProducts")
@dataclass(frozen=True)
class StackProducts:
    """Products of slices of one value with the same constant weights become slices of one product.

    ``matmul(x[0:1], w), matmul(x[1:2], w)`` -> ``y = matmul(x[0:2], w)``, then ``y[0:1], y[1:2]``; also where a
    ``reshape`` follows the slice. There must be no gaps between the slices, so that no unused row is computed.
    """

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions = {gvar: _stacked(func, mod) for gvar, func in mod.functions_items()}
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


@dataclass(frozen=True, slots=True)
class _Product:
    """``matmul`` of rows ``first`` to ``last`` of an axis with constant weights; the axis may be flattened."""

    call: Call
    rows: Slice
    axis: int
    first: int
    last: int

    def of(self, y: Expr, first: int) -> Expr:
        """This product as a part of ``y``, the product of all rows from ``first`` on."""
        axis = self.axis if rank_of(y) > 2 else 0
        part = op.strided_slice(y, [axis], [self.first - first], [self.last - first], [1])
        shape = list(static_shape(self.call) or ())
        return part if rank_of(y) == len(shape) == 2 else op.reshape(part, shape)


def _stacked(func: ir.BaseFunc, mod: IRModule) -> ir.BaseFunc:
    if not isinstance(func, relax.Function) or why_left_alone(func) is not None:
        return func
    changed = ChangedMemory(func, changed_params(func, mod))
    blocks = [_of_block(block, changed) for block in func.body.blocks]
    if all(new.same_as(old) for new, old in zip(blocks, func.body.blocks, strict=True)):
        return func
    body = relax.SeqExpr(blocks, func.body.body)
    new = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)
    # Equal rows are computed once, and unused bindings are removed.
    return rewrite_function(relax.BlockBuilder().normalize(new), (), mod)


def _of_block(block: relax.BindingBlock, changed: ChangedMemory) -> relax.BindingBlock:
    groups = _groups(block, changed) if isinstance(block, relax.DataflowBlock) else []
    if not groups:
        return block
    group_of = {var: group for group in groups for var in group}
    made: dict[relax.Var, Expr] = {}
    bindings: list[relax.Binding] = []
    for binding in block.bindings:
        group = group_of.get(binding.var)
        if group is None:
            bindings.append(binding)
            continue
        leader, first = next(iter(group)), min(product.first for product in group.values())
        if leader not in made:
            made[leader] = _leaf(_together(list(group.values())), bindings)
        part = group[binding.var].of(made[leader], first)
        bindings.append(relax.VarBinding(binding.var, _flat(part, bindings)))
    return relax.DataflowBlock(bindings)


def _leaf(expr: Expr, bindings: list[relax.Binding]) -> Expr:
    """A variable for a call, which is appended to ``bindings``; any other expression itself."""
    if not isinstance(expr, relax.Call):
        return expr
    call = _flat(expr, bindings)
    bindings.append(relax.VarBinding(relax.DataflowVar("rows", call.ty), call))
    return bindings[-1].var


def _flat(call: Expr, bindings: list[relax.Binding]) -> Expr:
    """A call with variables as operands."""
    return map_operands(call, lambda operand: _leaf(operand, bindings), relax.BlockBuilder())


def _groups(block: relax.BindingBlock, changed: ChangedMemory) -> list[Mapping[relax.Var, _Product]]:
    """Groups of products of a block that become one product, each in the order of the block.

    Rows of ``changed`` memory are read where they are sliced: the product may come after the change.
    """
    values = {binding.var: binding.value for binding in block.bindings}
    found: dict[object, dict[relax.Var, _Product]] = defaultdict(dict)
    for var, value in values.items():
        product = _product(value, values)
        source = None if product is None else product.rows.source
        if product is not None and not (isinstance(source, relax.Var) and changed.has(source)):
            key = (product.rows.source, product.axis, product.call.args[1], dtype_of(product.call))
            found[key][var] = product
    return [group for group in found.values() if len(group) > 1 and _without_gaps(list(group.values()))]


def _product(call: Expr, values: Mapping[relax.Var, Expr]) -> _Product | None:
    if not isinstance(call, relax.Call) or op_name(call) != "relax.matmul":
        return None
    if not is_constant(call.args[1]) or rank_of(call.args[1]) != 2:
        return None
    source = _through_reshape(call.args[0], values)
    if not isinstance(source, relax.Call) or op_name(source) != "relax.strided_slice":
        return None
    rows = slice_of(source)
    shape = None if rows is None else static_shape(rows.source)
    if rows is None or shape is None or static_shape(call) is None:
        return None
    axes = [axis for axis, size in enumerate(shape) if rows.count[axis] != size]
    if len(axes) != 1 or rows.step[axes[0]] != 1 or axes[0] == len(shape) - 1:
        return None
    if (shape[-1],) != (static_shape(call.args[1]) or ())[:1]:
        return None
    first = rows.begin[axes[0]]
    return _Product(call, rows, axes[0], first, first + rows.count[axes[0]])


def _through_reshape(expr: Expr, values: Mapping[relax.Var, Expr]) -> Expr:
    """The operand of a reshape; the last axis is that of the product, so the order of the rows is the same."""
    value = values.get(expr, expr) if isinstance(expr, relax.Var) else expr
    inner = value.args[0] if isinstance(value, relax.Call) and op_name(value) == "relax.reshape" else expr
    return values.get(inner, inner) if isinstance(inner, relax.Var) else inner


def _without_gaps(group: Sequence[_Product]) -> bool:
    """Whether the products together read adjacent rows without gaps, and more rows than each of them alone."""
    ordered = sorted(group, key=lambda product: product.first)
    end = ordered[0].last
    for product in ordered[1:]:
        if product.first > end:
            return False
        end = max(end, product.last)
    return all(end - ordered[0].first > product.last - product.first for product in group)


def _together(group: Sequence[_Product]) -> Expr:
    """One product of all rows: of a matrix, or of a value with the axes of the sliced value if it has more than the
    rows.
    """
    some = group[0]
    first, last = min(product.first for product in group), max(product.last for product in group)
    shape = list(static_shape(some.rows.source) or ())
    begin = [first if axis == some.axis else 0 for axis in range(len(shape))]
    count = [last - first if axis == some.axis else size for axis, size in enumerate(shape)]
    part = replace(some.rows, begin=tuple(begin), count=tuple(count))
    rows = part.source if count == shape else part.expr()
    flat = rows if len(shape) == 2 else op.reshape(rows, [math.prod(count[:-1]), shape[-1]])
    product = relax.Call(some.call.op, [flat, some.call.args[1]], some.call.attrs)
    if math.prod(count[:-1]) == last - first:
        return product
    return op.reshape(product, [*count[:-1], *(static_shape(some.call) or ())[-1:]])
