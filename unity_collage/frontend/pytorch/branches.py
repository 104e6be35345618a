"""``torch.cond``: its graphs become private functions, one of which the program calls.

A function of Relax has its own symbolic sizes, so the outer sizes are a parameter of it, a shape. Values that are known
while importing are constants inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from tvm import relax, tirx

from ..renaming import renamed
from .context import Value
from .symbols import LearntSizes

Branch = Callable[[Sequence[Value]], Sequence[relax.Expr]]
"""Emits a graph for its operands, and returns its results."""


def has_branches(module: fx.GraphModule) -> bool:
    """Whether a graph, or one inside of it, has a ``torch.cond``."""
    graphs = (each.graph for each in module.modules() if isinstance(each, fx.GraphModule))
    return any(is_cond(node) for graph in graphs for node in graph.nodes)


def is_cond(node: fx.Node) -> bool:
    return node.target is torch.ops.higher_order.cond


def conditional(
    builder: relax.BlockBuilder,
    condition: relax.Expr,
    branches: Mapping[str, Branch],
    operands: Sequence[Value],
    sizes: LearntSizes,
) -> list[relax.Expr]:
    """The results of the first branch where ``condition`` holds, else those of the second; both have the same types.

    ``condition`` is a boolean with one element. ``branches`` is by name.
    """
    flag = builder.emit(relax.op.reshape(condition, []))
    yes, no = (_call(builder, name, branch, operands, sizes) for name, branch in branches.items())
    chosen: Any = builder.emit(relax.If(flag, yes, no))
    return [builder.emit(relax.TupleGetItem(chosen, n)) for n in range(len(chosen.ty.fields))]


def _call(
    builder: relax.BlockBuilder, name: str, branch: Branch, operands: Sequence[Value], sizes: LearntSizes
) -> relax.Call:
    inner_sizes = {size: tirx.Var(size.name, size.ty) for size in sizes.variables()}
    tensors = list(dict.fromkeys(filter(_is_tensor, operands)))
    params = {var: relax.Var(var.name, renamed(var.ty, inner_sizes)) for var in tensors}
    shape = [relax.Var("sizes", relax.ShapeType(list(inner_sizes.values())))] if inner_sizes else []
    with builder.function(name, [*params.values(), *shape], private=True):
        with sizes.renamed(inner_sizes):
            inside = [params[each] if _is_tensor(each) else renamed(each, inner_sizes) for each in operands]
            results = branch(inside)
        function = builder.emit_func_output(relax.Tuple(list(results)))
    return relax.Call(function, [*tensors, *([relax.ShapeExpr(list(inner_sizes))] if inner_sizes else [])])


def _is_tensor(value: Value) -> bool:
    """Whether an operand is a computed tensor; variables of sizes are of the same class."""
    return isinstance(value, relax.Var) and isinstance(value.ty, relax.TensorType)
