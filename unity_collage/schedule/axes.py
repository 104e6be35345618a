"""The same stage over other axes: axes that are contiguous in memory are joined, axes with groups are split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad

from .stage import Access, Expr, Iter, Stage, Var, nodes, static, stride


def axis(like: Var, extent: int | Expr, reduces: bool = False) -> Iter:
    """A new iterator with the name and the type of ``like``."""
    bound = tirx.const(extent, like.expr_ty().dtype) if isinstance(extent, int) else extent
    return Iter(tirx.Var(like.name, like.ty), bound, reduces)


def simplified(stage: Stage) -> Stage:
    """``stage`` with the indices of its accesses simplified, given the range of each iterator."""
    analyzer = ranges(stage.iters)

    def load(node: TensorLoad) -> Expr:
        return tirx.BufferLoad(node.source, [analyzer.simplify(index) for index in node.indices])

    def store(node: tirx.BufferStore) -> tirx.BufferStore:
        return tirx.BufferStore(node.buffer, node.value, [analyzer.simplify(index) for index in node.indices])

    body = tvm_ffi.structural_map(stage.body, [(TensorLoad, load), (tirx.BufferStore, store)])
    return replace(stage, body=body)


def ranges(iters: Sequence[Iter]) -> sym.Analyzer:
    """An analyzer that knows the range of each iterator."""
    analyzer = sym.Analyzer()
    for it in iters:
        analyzer.bind(it.var, Range.from_min_extent(tirx.const(0, it.var.expr_ty().dtype), it.extent))
    return analyzer


def with_value(stage: Stage, old: Expr, new: Expr) -> Stage:
    """``stage`` with ``new`` in place of the load or choice ``old``."""
    body = tvm_ffi.structural_map(stage.body, (type(old), lambda node: new if node.same_as(old) else node))
    return replace(stage, body=body)


def flattened(stage: Stage) -> Stage:
    """``stage`` with neighbouring axes joined where every access goes through them with one stride."""
    return joined((stage,), stage.iters)[0]


def joined(stages: Sequence[Stage], axes: Sequence[Iter]) -> tuple[Stage, ...]:
    """Stages that share ``axes``, with neighbouring axes joined where every access goes through them with one
    stride."""
    analyzer, left = sym.Analyzer(), list(axes)
    loose = [var for stage in stages for var in _outside_of_indices(stage)]
    for position in range(len(left) - 1, 0, -1):
        first, second = left[position - 1 : position + 1]
        if first.reduces != second.reduces or first.var in loose or second.var in loose:
            continue
        accesses = [access for stage in stages for access in (*stage.loads, *stage.stores)]
        if _one_walk(accesses, first, second, analyzer):
            both = axis(second.var, analyzer.simplify(first.extent * second.extent), second.reduces)
            found = [_joined(stage, first, second, both) for stage in stages]
            if second.size is None and not _has_strides(found, both.var, analyzer):
                continue
            left[position - 1 : position + 1] = [both]
            stages = found
    return tuple(stages)


def _has_strides(stages: Sequence[Stage], var: Var, analyzer: sym.Analyzer) -> bool:
    """Whether TVM sees that every access has a stride along ``var``, also one over an extent that it does not know."""
    accesses = [access for stage in stages for access in (*stage.loads, *stage.stores)]
    return all(stride(access, var, analyzer) is not None for access in accesses)


def _joined(stage: Stage, first: Iter, second: Iter, both: Iter) -> Stage:
    values = {
        first.var: tirx.floordiv(both.var, second.extent),
        second.var: tirx.floormod(both.var, second.extent),
    }
    iters = [both if it is second else it for it in stage.iters if it is not first]
    return stage.substituted(values, iters)


def split_groups(stages: Sequence[Stage], shared: Sequence[Iter]) -> tuple[Stage, ...]:
    """If a stage reads an iterator ``f`` as ``f // c``, all stages get ``g`` and ``o`` instead, with ``f = g * c +
    o``."""
    for quotient in [found for stage in stages for found in nodes(stage.body, tirx.FloorDiv)]:
        size = static(quotient.b)
        for it in shared:
            fits = isinstance(quotient.a, tirx.Var) and it.var.same_as(quotient.a) and it.size is not None
            if fits and size is not None and 1 < size < (it.size or 0) and (it.size or 0) % size == 0:
                group, inner = axis(it.var, (it.size or 0) // size), axis(it.var, size)
                return tuple(simplified(_split(stage, it, group, inner)) for stage in stages)
    return tuple(stages)


def _split(stage: Stage, old: Iter, group: Iter, inner: Iter) -> Stage:
    iters = [new for it in stage.iters for new in ((group, inner) if it is old else (it,))]
    return stage.substituted({old.var: group.var * inner.extent + inner.var}, iters)


def _one_walk(accesses: Sequence[Access], first: Iter, second: Iter, analyzer: sym.Analyzer) -> bool:
    """Whether in every access a step along ``first`` is as far in memory as the whole extent of ``second``."""
    for access in accesses:
        far, near = stride(access, first.var, analyzer), stride(access, second.var, analyzer)
        if far is None or near is None or not analyzer.can_prove_equal(far, near * second.extent):
            return False
    return True


def _outside_of_indices(stage: Stage) -> list[Var]:
    """Variables on which the stored value depends directly, not only through the indices of loads."""
    values = [store.value for store in stage.stores]
    bare = tvm_ffi.structural_map(values, (TensorLoad, lambda load: tirx.const(0, str(load.source.dtype))))
    return nodes(bare, tirx.Var)
