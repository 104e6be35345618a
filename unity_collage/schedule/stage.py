"""A PrimFunc as a list of stages, each one block in one loop nest, as ``LegalizeOps`` makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.tirx.stmt import Stmt

Expr: TypeAlias = ir.Expr
Var: TypeAlias = tirx.Var
Buffer: TypeAlias = tirx.Buffer
Func: TypeAlias = tirx.PrimFunc
Access: TypeAlias = TensorLoad | tirx.BufferStore
"""A load or a store of one element."""

_Node = TypeVar("_Node")

_EXPENSIVE = ("exp", "erf", "tanh", "sigmoid", "pow", "log", "sin", "cos", "sqrt", "rsqrt")
_COST_OF_EXPENSIVE = 3
ASSUMED = 64
"""The steps of an axis whose size is known only when the program runs, where a choice depends on their number."""


@dataclass(frozen=True, slots=True)
class Iter:
    """One iterator of a block: ``var`` runs over [0, extent)."""

    var: Var
    extent: Expr
    reduces: bool

    @property
    def size(self) -> int | None:
        """The extent, or None when it is symbolic."""
        return static(self.extent)


@dataclass(frozen=True, slots=True)
class Stage:
    """One block with its iterators; ``init`` is the initial value that a reduction writes."""

    name: str
    iters: tuple[Iter, ...]
    init: Stmt | None
    body: Stmt
    temporary: bool = False
    """Whether it writes a temporary, whose storage may be shared with a buffer that the stage reads."""
    passed_on: bool = False
    """Whether it writes a temporary of a larger kernel, of which other parts read it; its storage may be shared too."""

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
        """The only store of the body, or None if the body has other statements."""
        return self.body if isinstance(self.body, tirx.BufferStore) else None

    @property
    def updates_itself(self) -> bool:
        """Whether it reads a buffer that it writes."""
        return self.reads(self)

    def reads(self, other: Stage) -> bool:
        """Whether it reads a buffer that ``other`` writes."""
        return any(load.source.same_as(store.buffer) for load in self.loads for store in other.stores)

    @property
    def once_only(self) -> bool:
        """Whether each element must be written only once, because a second write would read the first."""
        return self.temporary or self.passed_on or self.updates_itself

    @property
    def work(self) -> int | Expr:
        """The number of element operations, an expression where a shape is symbolic; an expensive call counts as
        three."""
        total: int | Expr = 1 + _COST_OF_EXPENSIVE * len(expensive_calls(self.body))
        for it in self.iters:
            total = total * (it.extent if it.size is None else it.size)
        return total

    def substituted(self, values: Mapping[Var, Expr], iters: Sequence[Iter]) -> Stage:
        """The stage over other iterators; ``values`` has each old iterator in terms of the new ones."""
        init = None if self.init is None else substitute(self.init, values)
        return replace(self, iters=tuple(iters), init=init, body=substitute(self.body, values))


def static(extent: Expr | None) -> int | None:
    """The value of a constant extent, or None."""
    return int(extent.value) if isinstance(extent, tirx.IntImm) else None


def nodes(root: Any, kind: type[_Node] | tuple[type[_Node], ...]) -> list[_Node]:
    """Every node of ``kind`` below ``root``, children first."""
    found: list[_Node] = []
    tvm_ffi.structural_walk(root, (kind, lambda node: found.append(node)))
    return found


def expensive_calls(root: Any) -> list[Call]:
    """The calls that take many instructions for each element."""
    return [call for call in nodes(root, Call) if op_name(call) in _EXPENSIVE]


def choices(root: Any) -> list[Call]:
    """The calls that choose one of two values: padding, concatenation, selection."""
    return [call for call in nodes(root, Call) if op_name(call) == "if_then_else"]


def op_name(call: Call) -> str:
    """The name of the operator without its dialect; empty if a function is called."""
    return getattr(call.op, "name", "").rpartition(".")[2]


def substitute(node: Any, values: Mapping[Var, Expr]) -> Any:
    """``node`` with variables replaced."""
    return tvm_ffi.structural_map(node, (tirx.Var, lambda var: values.get(var, var)))


def stride(access: Access, var: Var, analyzer: sym.Analyzer) -> Expr | None:
    """The distance in memory, in elements, between two neighbours along ``var``, or None if it is not constant."""
    flat = flat_index(access)
    if flat is None:
        return tirx.const(0, var.expr_ty().dtype)
    linear = sym.detect_linear_equation(analyzer.simplify(flat), [var])
    return analyzer.simplify(linear[0]) if linear else None


def flat_index(access: Access) -> Expr | None:
    """The distance of an element from the first one, in elements; None for a buffer without dimensions."""
    flat: Expr | None = None
    for index, extent in zip(access.indices, buffer_of(access).shape, strict=True):
        flat = index if flat is None else flat * extent + index
    return flat


def buffer_of(access: Access) -> Buffer:
    """The buffer that is read or written."""
    return access.source if isinstance(access, TensorLoad) else access.buffer
