"""A PrimFunc as a list of stages: one loop nest around one block each, as ``LegalizeOps`` leaves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import Call, Expr
from tvm.ir.expr import TensorLoad
from tvm.tirx.stmt import Stmt

_EXPENSIVE = ("exp", "erf", "tanh", "sigmoid", "pow", "log", "sin", "cos", "sqrt", "rsqrt")
_COST_OF_EXPENSIVE = 10


@dataclass(frozen=True, slots=True)
class Iter:
    """One iterator of a block: ``var`` runs over [0, extent)."""

    var: tirx.Var
    extent: Expr
    reduces: bool

    @property
    def size(self) -> int | None:
        """The extent, or None when it is symbolic."""
        return static(self.extent)


@dataclass(frozen=True, slots=True)
class Stage:
    """One block with its iterators. ``init`` is what a reduction writes first."""

    name: str
    iters: tuple[Iter, ...]
    init: Stmt | None
    body: Stmt
    temporary: bool = False
    """Whether it writes a temporary. Its storage may be shared with what the stage reads."""

    @property
    def spatial(self) -> tuple[Iter, ...]:
        return tuple(it for it in self.iters if not it.reduces)

    @property
    def reduction(self) -> tuple[Iter, ...]:
        return tuple(it for it in self.iters if it.reduces)

    @property
    def loads(self) -> tuple[TensorLoad, ...]:
        return tuple(nodes(self.body, TensorLoad))

    @property
    def stores(self) -> tuple[tirx.BufferStore, ...]:
        return tuple(nodes(self.body, tirx.BufferStore))

    @property
    def store(self) -> tirx.BufferStore | None:
        """The one store of the body, or None when there are several or other statements."""
        return self.body if isinstance(self.body, tirx.BufferStore) else None

    @property
    def once_only(self) -> bool:
        """Whether an element may be written once only: a second time would read what the first wrote."""
        written = [store.buffer for store in self.stores]
        return self.temporary or any(load.source.same_as(buffer) for load in self.loads for buffer in written)

    @property
    def work(self) -> int | None:
        """Element operations (a transcendental counts for ten), or None when a shape is symbolic."""
        total = 1 + _COST_OF_EXPENSIVE * len(expensive_calls(self.body))
        for it in self.iters:
            if it.size is None:
                return None
            total *= it.size
        return total

    def substituted(self, values: Mapping[tirx.Var, Expr], iters: Sequence[Iter]) -> Stage:
        """The same stage over other iterators: ``values`` says what each old one is in terms of them."""
        init = None if self.init is None else substitute(self.init, values)
        return replace(self, iters=tuple(iters), init=init, body=substitute(self.body, values))


def static(extent: Expr) -> int | None:
    """The value of a constant extent, or None."""
    return int(extent.value) if isinstance(extent, tirx.IntImm) else None


def nodes(root: Any, kind: type | tuple[type, ...]) -> list[Any]:
    """Every node of ``kind`` below ``root``, children first."""
    found: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, lambda node: found.append(node)))
    return found


def expensive_calls(root: Any) -> list[Call]:
    """Calls that cost many instructions an element."""
    return [call for call in nodes(root, Call) if getattr(call.op, "name", "").removeprefix("tirx.") in _EXPENSIVE]


def substitute(node: Any, values: Mapping[tirx.Var, Expr]) -> Any:
    """``node`` with variables replaced."""
    return tvm_ffi.structural_map(node, (tirx.Var, lambda var: values.get(var, var)))


def stride(access: TensorLoad | tirx.BufferStore, var: tirx.Var, analyzer: sym.Analyzer) -> Expr | None:
    """Elements between two neighbours along ``var`` in memory, or None when that is not constant."""
    flat: Expr | int = 0
    for index, extent in zip(access.indices, buffer_of(access).shape, strict=True):
        flat = flat * extent + index
    if isinstance(flat, int):
        return tirx.const(0, var.ty.dtype)
    linear = sym.detect_linear_equation(analyzer.simplify(flat), [var])
    return analyzer.simplify(linear[0]) if linear else None


def buffer_of(access: TensorLoad | tirx.BufferStore) -> tirx.Buffer:
    """The buffer that is read or written."""
    return access.source if isinstance(access, TensorLoad) else access.buffer


def stages_of(func: tirx.PrimFunc) -> tuple[Stage, ...] | str:
    """The stages of ``func`` in program order, or the reason why it is not such a list."""
    realize = func.body
    if not isinstance(realize, s_tir.SBlockRealize) or realize.block.iter_vars:
        return "the body is not a root block"
    root = realize.block
    body = root.body
    found: list[Stage] = []
    for nest in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
        stage = _stage(nest)
        if isinstance(stage, str):
            return stage
        found.append(replace(stage, temporary=any(store.buffer in root.alloc_buffers for store in stage.stores)))
    return tuple(found)


def _stage(nest: Stmt) -> Stage | str:
    """A perfect serial nest whose block binds each iterator to one loop."""
    extents: dict[tirx.Var, Expr] = {}
    while isinstance(nest, tirx.For):
        if nest.kind != tirx.ForKind.SERIAL or nest.annotations or static(nest.min) != 0:
            return f"loop {nest.loop_var.name} is already scheduled"
        extents[nest.loop_var] = nest.extent
        nest = nest.body
    if not isinstance(nest, s_tir.SBlockRealize):
        return "a loop nest does not end in one block"
    block = nest.block
    if block.alloc_buffers or block.match_buffers or static(nest.predicate) != 1:
        return f"block {block.name_hint} has a predicate or buffers of its own"
    iters: list[Iter] = []
    for it, value in zip(block.iter_vars, nest.iter_values, strict=True):
        if it.iter_type not in (tirx.IterVar.DataPar, tirx.IterVar.CommReduce):
            return f"block {block.name_hint} has an ordered iterator"
        if not (isinstance(value, tirx.Var) and value in extents) and static(value) != 0:
            return f"block {block.name_hint} does not bind its iterators to loops"
        iters.append(Iter(it.var, it.dom.extent, it.iter_type == tirx.IterVar.CommReduce))
    if nodes(block.body, (s_tir.SBlock, tirx.For)):
        return f"block {block.name_hint} has loops inside"
    return Stage(block.name_hint, tuple(iters), block.init, block.body)
