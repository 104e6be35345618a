"""OfferLayouts: let the search choose the layout of every image that is in memory in all plans.

Reads    ``collage.candidates``, from AnnotateCandidates, which show the images that are never inside a kernel.
Writes   two cancelling transposes, channels last to channels first and back, between the operator that writes such an
         image and each that reads it. Removes ``collage.candidates`` and ``collage.declined``: run AnnotateCandidates
         again.
Keeps    what the program computes. Every plan of the old function is also a plan of the new one, at the same cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, DECLINED
from ..graph import DataflowGraph, Node, index_set, members
from ..graph.extract import substitute
from ..index_set import EMPTY, IndexSet
from ..plan.candidate import Candidate

_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)
"""Channels last as channels first, and back."""


@tvm.transform.module_pass(opt_level=0, name="collage.OfferLayouts")
@dataclass(frozen=True)
class OfferLayouts:
    """Offer each image in channels first too, so that the search can choose.

    ``y = conv2d(x, w); z = conv2d(y, v)`` becomes ``y = conv2d(x, w); f = permute_dims(y, [0, 3, 1, 2]); l =
    permute_dims(f, [0, 2, 3, 1]); z = conv2d(l, v)``. A kernel that covers ``f`` writes channels first, and one that
    covers ``l`` reads it. A kernel of one transpose changes the layout. Both transposes as a view cost nothing and keep
    the layout. So the value between two kernels determines the layout, and the search needs no other information.

    Images are tensors of four axes in float32 or bfloat16 with more than one channel and more than one pixel. An image
    keeps channels last if some kernel could contain both its writer and its reader.
    """

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions = {
            gvar: _offered(func) if isinstance(func, relax.Function) and CANDIDATES.on(func) else func
            for gvar, func in mod.functions_items()
        }
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _offered(func: relax.Function) -> relax.Function:
    graph = DataflowGraph(func)
    candidates = CANDIDATES.read(func)
    readers = {
        node.index: apart
        for node in graph.nodes
        if _is_image(node) and (apart := _never_inside(graph, node, candidates))
    }
    blocks = [_block(graph, number, readers) for number in range(len(func.body.blocks))]
    body = relax.SeqExpr(blocks, func.body.body)
    bare = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
    offered = bare.without_attr(CANDIDATES.name).without_attr(DECLINED.name)
    return relax.BlockBuilder().normalize(offered)


def _is_image(node: Node) -> bool:
    ty = node.var.ty
    if not node.in_dataflow or node.call is None or not isinstance(ty, relax.TensorType) or ty.ndim != 4:
        return False
    if not isinstance(ty.shape, relax.ShapeExpr) or str(ty.dtype) not in ("float32", "bfloat16"):
        return False
    extents = [extent.value for extent in ty.shape.values if isinstance(extent, tvm.tirx.IntImm)]
    return len(extents) == 4 and extents[1] * extents[2] > 1 and extents[3] > 1


def _never_inside(graph: DataflowGraph, node: Node, candidates: Sequence[Candidate]) -> IndexSet:
    """The operators of the block that read ``node`` and are never in a kernel with it."""
    apart = index_set(
        i
        for i in members(graph.consumers[node.index])
        if graph.nodes[i].call is not None and graph.nodes[i].block == node.block
    )
    for candidate in candidates:
        if node.index in candidate.indexes:
            apart &= ~index_set(candidate.indexes)
    return apart


def _block(graph: DataflowGraph, number: int, readers: Mapping[int, IndexSet]) -> relax.BindingBlock:
    block = graph.func.body.blocks[number]
    if not isinstance(block, relax.DataflowBlock):
        return block
    first: dict[int, relax.Var] = {}
    bindings: list[relax.Binding] = []
    for node in graph.nodes:
        if node.block == number:
            sources = [i for i in node.inputs if readers.get(i, EMPTY) >> node.index & 1]
            back = {i: _permuted(first[i], _LAST, f"{graph.nodes[i].var.name}_last") for i in sources}
            bindings += [*back.values(), _reading(graph, node, {i: pair.var for i, pair in back.items()})]
            if node.index in readers:
                bindings.append(_permuted(node.var, _FIRST, f"{node.var.name}_first"))
                first[node.index] = bindings[-1].var
    return relax.DataflowBlock(bindings)


def _reading(graph: DataflowGraph, node: Node, instead: Mapping[int, relax.Var]) -> relax.Binding:
    """The binding, which reads the variables ``instead`` of some nodes."""
    if not instead:
        return node.binding
    value = substitute(node.value, {graph.nodes[i].var: var for i, var in instead.items()})
    return relax.VarBinding(node.var, _normalized(value))


def _permuted(source: relax.Var, axes: Sequence[int], name: str) -> relax.VarBinding:
    value = _normalized(relax.op.permute_dims(source, axes))
    return relax.VarBinding(relax.DataflowVar(name, value.ty), value)


def _normalized(value: relax.Expr) -> relax.Expr:
    return relax.BlockBuilder().normalize(value)
