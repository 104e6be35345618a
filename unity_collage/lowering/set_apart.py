"""Keeps bindings out of TVM's fusion: PrimFuncs with final loops, and operators that have to stay in their place.

``FuseOps`` looks at ``op_pattern`` only. It would fuse a scheduled PrimFunc and lose its schedule. And it moves an
operator to its last reader, past calls that change an operand in place.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import ir, relax, s_tir, tirx
from tvm.ir import IRModule

from ..graph import DataflowGraph, SubGraph, outside_vars
from ..graph.calls import op_name
from ..graph.dataflow import has_kernel
from ..graph.extract import large_constants
from ..graph.in_place import IN_PLACE
from ..graph.kinds import OpKind
from ..graph.prim_funcs import CALL_TIR, is_scheduled, why_not_loops
from ..legalization.wide_indexes import is_buffer, is_row_major, plain, with_wide_indexes
from ..schedule.stage import nodes, substitute
from .outline import Group, NameSupply, global_var, outline
from .outlined import primitive_function


def with_set_apart(mod: IRModule) -> IRModule:
    """``mod`` where each such PrimFunc is opaque (``op_pattern`` 8), and each such operator a function of its own."""
    names = NameSupply(mod)
    functions: dict[ir.GlobalVar, ir.BaseFunc] = {}
    for gvar, func in mod.functions_items():
        if isinstance(func, relax.Function) and not _is_grouped(func):
            changed, outlined = _alone(DataflowGraph(func, mod), names)
            functions.update({gvar: changed, **outlined})
        else:
            functions[gvar] = func
    in_place, unknown = _called_in_place(functions), _with_sizes_of_results(functions)
    for gvar, func in functions.items():
        if isinstance(func, tirx.PrimFunc):
            functions[gvar] = _fusable(func, gvar.name_hint in in_place, gvar.name_hint in unknown)
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _fusable(prim: tirx.PrimFunc, in_place: bool, unknown: bool) -> tirx.PrimFunc:
    """``prim`` in the form that ``FuseOps`` and ``FuseTIR`` take, opaque where its loops stay a kernel of their own."""
    if in_place or _is_final(prim):
        return _rooted(prim).with_attr("op_pattern", int(OpKind.OPAQUE))
    wide = with_wide_indexes(prim)
    return wide.with_attr("op_pattern", int(OpKind.OPAQUE)) if unknown else wide


def _rooted(prim: tirx.PrimFunc) -> tirx.PrimFunc:
    """``prim`` with its body in a root block, which TVM's passes over Relax expect, on buffers without a layout."""
    if isinstance(prim.body, s_tir.SBlockRealize):
        return prim
    buffers = [param for param in prim.params if is_buffer(param)]
    fresh = {buffer: plain(buffer) for buffer in buffers if is_row_major(buffer)}
    root = s_tir.SBlock([], [], [], "root", substitute(prim.body, fresh))
    params = [fresh.get(param, param) for param in prim.params]
    body = s_tir.SBlockRealize([], True, root)
    return tirx.PrimFunc(params, body, prim.ret_type, prim.attrs).with_attr("s_tir", True)


def final_kernels(mod: IRModule) -> frozenset[str]:
    """The names of the grouped functions with final loops, because a PrimFunc in them has final loops."""
    return frozenset(
        gvar.name_hint
        for gvar, func in mod.functions_items()
        if isinstance(func, relax.Function)
        and _is_grouped(func)
        and any(node.prim is not None and is_scheduled(node.prim) for node in DataflowGraph(func, mod).nodes)
    )


def _is_grouped(func: relax.Function) -> bool:
    return any(name in (func.attrs or {}) for name in ("Primitive", "Composite", "Codegen"))


def _is_final(prim: tirx.PrimFunc) -> bool:
    return is_scheduled(prim) or why_not_loops(prim) is not None


def _called_in_place(functions: Mapping[ir.GlobalVar, ir.BaseFunc]) -> set[str]:
    found: set[str] = set()

    def visit(expr: relax.Expr) -> None:
        if op_name(expr) in IN_PLACE and isinstance(expr, relax.Call):
            callee = expr.args[0]
            found.update([callee.name_hint] if isinstance(callee, relax.GlobalVar) else [])

    for func in functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    return found


def _with_sizes_of_results(functions: Mapping[ir.GlobalVar, ir.BaseFunc]) -> set[str]:
    """The PrimFuncs with a size that only a result has, as the numbers up to one that is known when the program runs.

    ``FuseTIR`` takes the sizes of a fused kernel from operands: it does not know such a size.
    """
    prims = {gvar.name_hint: func for gvar, func in functions.items() if isinstance(func, tirx.PrimFunc)}
    found: set[str] = set()

    def visit(expr: relax.Expr) -> None:
        if op_name(expr) != CALL_TIR or not isinstance(expr, relax.Call):
            return
        callee, operands = expr.args[:2]
        name = callee.name_hint if isinstance(callee, relax.GlobalVar) else ""
        prim = prims.get(name)
        if prim is not None and isinstance(operands, relax.Tuple):
            count = len(operands.fields)
            known = {param for param in prim.params if not is_buffer(param)}
            known.update(*map(_sizes, prim.params[:count]))
            if any(_sizes(param) - known for param in prim.params[count:]):
                found.add(name)

    for func in functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    return found


def _sizes(param: ir.Var) -> set[ir.Var]:
    """The variables in the shape of a parameter."""
    return {size for extent in getattr(param, "shape", ()) for size in nodes(extent, (ir.Var,))}


def _alone(
    graph: DataflowGraph, names: NameSupply
) -> tuple[relax.Function, dict[relax.GlobalVar, relax.Function]]:
    """The function of ``graph`` with a function of its own for each operator with an operand that is changed later."""
    groups: list[Group] = []
    outlined: dict[relax.GlobalVar, relax.Function] = {}
    for node in graph.nodes:
        if not node.changed_by or node.is_host or node.call is None:
            continue
        if not (has_kernel(node.call) or (node.op == CALL_TIR and node.prim and not _is_final(node.prim))):
            continue
        sub = SubGraph(graph, 1 << node.index)
        func = primitive_function(sub)
        gvar = global_var(names.fresh(f"early_{node.label}"), func)
        outlined[gvar] = func
        groups.append(Group(sub, gvar, (*outside_vars(sub), *large_constants(sub))))
    return (outline(graph, groups), outlined) if groups else (graph.func, outlined)
