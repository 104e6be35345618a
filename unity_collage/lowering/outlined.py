"""The function of a chosen candidate, as a backend's code generator or TVM gets it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from ..annotations import LABEL, LIFTED, OPTIONS, PARTS, THREADS, options_of, plain, threads_of
from ..backends.foreign.bridge import composite_attrs
from ..backends.library_calls import library_call
from ..graph import DataflowGraph, Signatures, SubGraph, extract, index_set, outside_vars, substitute
from ..graph.devices import without_devices
from ..plan.candidate import Candidate
from .kernel_sizes import with_sizes_of_its_own
from .outline import Group, outline


def kernel_function(
    graph: DataflowGraph, candidate: Candidate, *, lift_constants: bool = False, alone: bool = True
) -> relax.Function:
    """The function that a candidate computes, from :func:`extract`, with its composites as attribute ``PARTS``."""
    func = with_sizes_of_its_own(
        extract(candidate.sub_graph(graph), lift_constants=lift_constants, alone=alone)
    )
    if candidate.threads is not None:
        func = func.with_attr(THREADS, candidate.threads)
    if candidate.options:
        func = func.with_attr(OPTIONS, dict(candidate.options))
    if candidate.composites:
        return func.with_attr(PARTS, _described(graph, candidate))
    return func if candidate.backend == "tvm" else func.with_attr(LABEL, candidate.label)


def kernel_digest(signatures: Signatures, graph: DataflowGraph, candidate: Candidate) -> str:
    """A digest of what a candidate computes and of its parts: equal digest and backend, equal kernel."""
    sub = candidate.sub_graph(graph)
    more: list[str] = []
    if candidate.composites:
        more.append(json.dumps(_described(graph, candidate), sort_keys=True, default=str))
    elif candidate.label != sub.label:
        more.append(candidate.label)
    if candidate.threads is not None:
        more.append(f"threads: {candidate.threads}")
    if candidate.options:
        more.append(f"options: {json.dumps(candidate.options)}")
    if not more:
        return signatures.digest(sub)
    return hashlib.sha256("\n".join([signatures.text(sub), *more]).encode()).hexdigest()[:24]


def _described(graph: DataflowGraph, candidate: Candidate) -> list[dict[str, Any]]:
    position = {index: place for place, index in enumerate(sorted(candidate.indexes))}
    return [
        {
            "label": label,
            "bindings": [position[index] for index in indexes],
            "attrs": composite_attrs(label, graph, index_set(indexes)),
        }
        for label, indexes in candidate.composites
    ]


def primitive_function(sub: SubGraph, threads: int | None = None) -> relax.Function:
    """``sub`` as one kernel of TVM, which later fusion leaves alone; large constants are parameters."""
    func = extract(sub, lift_constants=True).without_attr(LIFTED).with_attr("Primitive", 1)
    return func if threads is None else func.with_attr(THREADS, threads)


def with_parts_inside(func: relax.Function) -> relax.Function:
    """``func``, from :func:`kernel_function`, with its parts as local functions with ``Composite``, for a kernel of TVM
    that calls libraries (:mod:`.library_calls`); ``func`` itself where it has none.

    Parts whose label has no library call are operators like the others.
    """
    if PARTS not in (func.attrs or {}):
        return func
    bare = func.without_attr(PARTS)
    graph = DataflowGraph(bare)
    called = [part for part in plain(func.attrs[PARTS]) if library_call(str(part["label"])) is not None]
    parts = [_part(graph, part, i) for i, part in enumerate(called)]
    return _with_parts(graph, parts, "kernel").without_attr("global_symbol").with_attrs(bare.attrs)


def external_function(func: relax.Function, backend: str, label: str, symbol: str) -> relax.Function:
    """``func``, from :func:`kernel_function`, for a code generator, in the form of ``MergeCompositeFunctions``.

    The result has ``Codegen`` and ``global_symbol``. For each part it calls a local function with attribute
    ``Composite``, in an order in which they can run. Operators that are in no part are called directly. Without parts
    the whole function is one part, named ``<backend>.<label>``.
    """
    described = plain(func.attrs[PARTS]) if PARTS in (func.attrs or {}) else []
    label = str(func.attrs[LABEL]) if LABEL in (func.attrs or {}) else label
    threads = threads_of(func)
    more: dict[str, Any] = {} if threads is None else {THREADS: threads}
    if options := options_of(func):
        more[OPTIONS] = options
    bare = func.without_attr(PARTS).without_attr(LABEL).without_attr(THREADS).without_attr(OPTIONS)
    if described:
        graph = DataflowGraph(bare)
        outer = _with_parts(graph, [_part(graph, part, i) for i, part in enumerate(described)], symbol)
    else:
        outer = _around(bare.with_attr("Composite", f"{backend}.{label}"), symbol)
    return outer.with_attrs({"Codegen": backend, "global_symbol": symbol, **more})


def _around(composite: relax.Function, symbol: str) -> relax.Function:
    """A function that only calls ``composite``.

    The types of a local function name no virtual devices: TVM's parser does not read them there.
    """
    params = [relax.Var(param.name, param.ty) for param in composite.params]
    builder = relax.BlockBuilder()
    with builder.function(symbol, params):
        local = builder.emit(without_devices(composite), "composite")
        builder.emit_func_output(builder.emit(relax.Call(local, params, ret_ty=composite.ret_ty), "result"))
    return builder.get()[symbol]


@dataclass(frozen=True, slots=True)
class _Part:
    """One composite function, and the name that stands for it until it is emitted."""

    sub: SubGraph
    name: relax.GlobalVar
    composite: relax.Function


def _part(graph: DataflowGraph, described: Mapping[str, Any], number: int) -> _Part:
    bindings = [binding for block in graph.func.body.blocks for binding in block.bindings]
    inside = index_set(graph.index_of[bindings[place].var] for place in described["bindings"])
    composite = extract(SubGraph(graph, inside)).with_attrs(
        {**described["attrs"], "Composite": described["label"]}
    )
    return _Part(SubGraph(graph, inside), relax.GlobalVar(f"composite{number}"), composite)


def _with_parts(graph: DataflowGraph, parts: Sequence[_Part], symbol: str) -> relax.Function:
    """A function without dataflow blocks that calls the parts and the operators of ``graph`` that are in no part."""
    ordered = outline(graph, [Group(part.sub, part.name, tuple(outside_vars(part.sub))) for part in parts])
    composites = {part.name: part.composite for part in parts}
    params = [relax.Var(param.name, param.ty) for param in ordered.params]
    renamed: dict[Any, relax.Expr] = dict(zip(ordered.params, params, strict=True))
    builder = relax.BlockBuilder()
    with builder.function(symbol, params):
        for block in ordered.body.blocks:
            for binding in block.bindings:
                value = substitute(binding.value, renamed)
                if (
                    isinstance(value, relax.Call)
                    and isinstance(value.op, relax.GlobalVar)
                    and value.op in composites
                ):
                    local = builder.emit(without_devices(composites[value.op]), value.op.name_hint)
                    value = relax.Call(local, value.args, ret_ty=binding.var.ty)
                renamed[binding.var] = builder.emit(value, binding.var.name)
        builder.emit_func_output(substitute(ordered.body.body, renamed))
    return builder.get()[symbol]
