"""Flat casts: the operand of a ``match_cast`` gets a binding of its own.

TVM's canonical form writes ``y = match_cast(f(x), T)``. Its script parses back to two bindings, another module. If the
operand is a shape with sums of sizes, TVM cannot build it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import ir, relax, tirx

from .bindings import with_blocks


def with_flat_casts(func: relax.Function) -> relax.Function:
    """``y = match_cast(f(x), T)`` -> ``z = f(x); y = match_cast(z, T)``, in the blocks of a function."""
    if not any(_is_nested(binding) for block in func.body.blocks for binding in block.bindings):
        return func
    return with_blocks(func, _flat)


def _is_nested(binding: relax.Binding) -> bool:
    if not isinstance(binding, relax.MatchCast) or isinstance(binding.value, (relax.Var, ir.GenericConst)):
        return False
    # TVM's VMShapeLower computes no expressions of a shape that stands in a cast.
    is_simple = (tirx.Var, tirx.IntImm)
    return not isinstance(binding.value, relax.ShapeExpr) or any(
        not isinstance(size, is_simple) for size in binding.value.values
    )


def _flat(block: relax.BindingBlock) -> Iterator[relax.Binding]:
    made = relax.DataflowVar if isinstance(block, relax.DataflowBlock) else relax.Var
    for binding in block.bindings:
        if isinstance(binding, relax.MatchCast) and _is_nested(binding):
            var = made(binding.var.name, binding.value.ty)
            yield relax.VarBinding(var, binding.value)
            yield relax.MatchCast(binding.var, var, binding.ty)
        else:
            yield binding
