"""Sizes that a user fixes in a Relax module."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Integral

from tvm import ir, relax
from tvm.ir import IRModule

from ..errors import ModelError, first_line
from ..graph.free_sizes import with_bound_sizes

Shapes = Mapping[str, int | Sequence[int] | Mapping[int, float]]
"""Sizes by name: a number for a dimension, several for an input. Several for a dimension, a range, or a mapping from
sizes to their weights are samples."""

Samples = dict[str, Sequence[int] | Mapping[int, float]]
"""Sample sizes by the name of a dimension, with their weights if there are some."""


def split(
    shapes: Shapes | None, inputs: Collection[str], dimensions: Collection[str]
) -> tuple[dict[str, int | Sequence[int]], Samples]:
    """The sizes that ``shapes`` fixes, and the samples in it; an input takes precedence over a dimension of the same
    name.

    Raises ModelError for a range or weights that are given for an input.
    """
    fixed: dict[str, int | Sequence[int]] = {}
    samples: Samples = {}
    for name, sizes in (shapes or {}).items():
        if isinstance(sizes, (range, Mapping)):
            if name in inputs or name not in dimensions:
                what, given = "an input" if name in inputs else "not one", _given(sizes)
                known = ", ".join(dimensions) or "none"
                raise ModelError(
                    f"{given} for a dimension, and {name!r} is {what}; the free dimensions are: {known}"
                )
            samples[name] = sizes
        elif isinstance(sizes, (int, Integral)):  # also a number of numpy
            fixed[name] = int(sizes)
        elif name in inputs or name not in dimensions:
            fixed[name] = sizes
        else:
            samples[name] = sizes
    return fixed, samples


def _given(sizes: range | Mapping[int, float]) -> str:
    return "a range is" if isinstance(sizes, range) else "weights are"


def dimensions_of(mod: IRModule) -> list[str]:
    """The names of the symbolic sizes in the parameters of ``main``."""
    return list(dict.fromkeys(var.name for param in mod["main"].params for var in _symbols(param)))


def with_fixed_sizes(
    mod: IRModule, shapes: Mapping[str, int | Sequence[int]], dims: Mapping[str, int]
) -> IRModule:
    """``mod`` with numbers for symbolic sizes in the parameters of ``main``; raises ModelError for other names."""
    if not shapes and not dims:
        return mod
    params = {param.name: param for param in mod["main"].params}
    symbols = {var.name: var for param in params.values() for var in _symbols(param)}
    fixed: dict[str, int] = {}
    for name, size in (*dims.items(), *((n, s) for n, s in shapes.items() if isinstance(s, int))):
        if name not in symbols:
            raise ModelError(f"main has no symbolic size {name!r}; it has {', '.join(symbols) or 'none'}")
        fixed[name] = size
    for name, sizes in shapes.items():
        if isinstance(sizes, int):
            continue
        if name not in params:
            raise ModelError(f"main has no parameter {name!r}; it has {', '.join(params)}")
        fixed |= _sizes_of(params[name], list(sizes))
    try:
        return with_bound_sizes(mod, fixed)
    except Exception as error:  # TVM's own errors
        raise ModelError(f"sizes cannot be fixed: {first_line(error)}") from error


def _symbols(param: relax.Var) -> list[ir.Var]:
    shape = getattr(param.ty, "shape", None)
    return [dim for dim in getattr(shape, "values", ()) if isinstance(dim, ir.Var)]


def _sizes_of(param: relax.Var, sizes: list[int]) -> dict[str, int]:
    """The symbolic sizes of a parameter that has the shape ``sizes``."""
    declared = list(getattr(getattr(param.ty, "shape", None), "values", ()))
    given = f"{', '.join(map(str, sizes))} is given for {param.name!r}, which is ({', '.join(map(str, declared))})"
    if len(declared) != len(sizes):
        raise ModelError(given)
    found: dict[str, int] = {}
    for dim, size in zip(declared, sizes, strict=True):
        if isinstance(dim, ir.Var):
            if found.setdefault(dim.name, size) != size:
                raise ModelError(given)
        elif int(getattr(dim, "value", size)) != size:
            raise ModelError(given)
    return found
