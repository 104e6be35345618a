"""Free dimensions that are multiples of a number.

The importer casts an input with a dimension ``32*rows`` of size ``n`` to ``n // 32 * 32``. So the sizes that depend
on it are simplified, and equal ones are recognised.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import ir, relax, tirx


def as_multiple(size: tirx.Var, factor: int) -> ir.Expr:
    """``size``, which is a multiple of ``factor``, as one."""
    return tirx.floordiv(size, factor) * factor


def multiples(main: relax.Function) -> dict[str, int]:
    """The number that each free dimension of ``main`` is a multiple of, by name."""
    found: dict[str, int] = {}
    for param, of_axis in multiples_of(main).items():
        for axis, size in enumerate(_extents(param)):
            if axis in of_axis and isinstance(size, ir.Var):
                found[size.name] = of_axis[axis]
    return found


def multiples_of(main: relax.Function) -> dict[relax.Var, dict[int, int]]:
    """For each parameter the axes that ``main`` casts to multiples, each with its factor."""
    found: dict[relax.Var, dict[int, int]] = {param: {} for param in main.params}
    for block in main.body.blocks:
        for binding in block.bindings:
            source = binding.value
            if isinstance(binding, relax.MatchCast) and isinstance(source, relax.Var) and source in found:
                found[source].update(_factors(binding.var))
    return found


def _factors(cast: relax.Var) -> Iterator[tuple[int, int]]:
    """The axes of a cast value whose size is a multiple, each with its factor."""
    for axis, size in enumerate(_extents(cast)):
        factors = (
            [side for side in (size.a, size.b) if isinstance(side, tirx.IntImm)]
            if isinstance(size, tirx.Mul)
            else []
        )
        for factor in factors:
            yield axis, int(factor.value)


def _extents(var: relax.Var) -> list[ir.Expr]:
    shape = getattr(var.ty, "shape", None)
    return list(getattr(shape, "values", ()))
