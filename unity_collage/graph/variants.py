"""Variants: functions that are made for single sizes, and the function that chooses between them.

Attributes of functions, which every pass can read, mark them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax
from tvm.ir import IRModule

SIZES = "collage.sizes"
"""Attribute of a variant: the size of each dimension that it is made for, by name."""

LIKE = "collage.like"
"""Attribute of a function that runs at many sizes: the size of each free dimension, by name, at which its kernels are
measured."""

RANGE = "collage.range"
"""Attribute of a function that runs at many sizes, and of the function that chooses variants: the sample sizes at which
plans are weighed, each with its weight; the weights add up to 1."""

UP_TO = "collage.up_to"
"""Attribute of a function for all smaller sizes: the dimensions, and the greatest product of their sizes."""

SWITCH = "collage.switch"
"""Attribute of the function that calls the variants: their names, the one for all other sizes last."""


@dataclass(frozen=True, slots=True)
class UpTo:
    """Sizes whose product is small."""

    dimensions: tuple[str, ...]
    most: int
    """The greatest product."""

    def __str__(self) -> str:
        return f"{' * '.join(self.dimensions)} <= {self.most}"


def sizes_of(func: ir.BaseFunc) -> dict[str, int]:
    """The sizes that ``func`` is made for, by dimension; empty unless it is a variant."""
    found: Any = func.attrs[SIZES] if SIZES in (func.attrs or {}) else {}
    return {str(name): int(size) for name, size in found.items()}


def like_of(func: ir.BaseFunc) -> dict[str, int]:
    """The sizes at which the kernels of ``func`` are measured, by free dimension; empty where all are static."""
    found: Any = func.attrs[LIKE] if LIKE in (func.attrs or {}) else {}
    return {str(name): int(size) for name, size in found.items()}


def range_of(func: ir.BaseFunc) -> list[tuple[dict[str, int], float]]:
    """The sizes at which plans are weighed, by free dimension, and the weight of each; empty for other functions."""
    found: Any = func.attrs[RANGE] if RANGE in (func.attrs or {}) else ()
    return [
        ({str(name): int(size) for name, size in each["sizes"].items()}, float(each["weight"]))
        for each in found
    ]


def with_range(func: relax.Function, weights: Iterable[tuple[Mapping[str, int], float]]) -> relax.Function:
    """``func`` with the sizes at which plans are weighed, and their weights."""
    return func.with_attr(RANGE, [{"sizes": dict(sizes), "weight": weight} for sizes, weight in weights])


def up_to_of(func: ir.BaseFunc) -> UpTo | None:
    """The sizes up to which the switch calls ``func``; None for a function without such a limit."""
    found: Any = func.attrs[UP_TO] if UP_TO in (func.attrs or {}) else None
    return found and UpTo(tuple(map(str, found["dimensions"])), int(found["most"]))


def with_up_to(func: relax.Function, limit: UpTo) -> relax.Function:
    """``func`` as one that the switch calls for sizes up to ``limit``."""
    return func.with_attr(UP_TO, {"dimensions": list(limit.dimensions), "most": limit.most})


def twin(func: relax.Function) -> relax.Function:
    """``func`` with the sizes at which its kernels are measured, binding by binding the same; itself without any."""
    return at_sizes(func, like_of(func))


def at_sizes(func: relax.Function, sizes: Mapping[str, int]) -> relax.Function:
    """``func`` with these sizes of its free dimensions, binding by binding the same."""
    names = {var.name for var in relax.analysis.defined_symbolic_vars(func)}
    fixed = {name: size for name, size in sizes.items() if name in names}
    return func.bind_symbolic_vars(fixed) if fixed else func


def is_switch(func: ir.BaseFunc) -> bool:
    """Whether ``func`` only calls the variant for the sizes of its inputs."""
    return SWITCH in (func.attrs or {})


def called_by_switch(func: ir.BaseFunc) -> tuple[str, ...]:
    """The names of the functions that the switch ``func`` chooses between; empty for other functions."""
    found: Any = func.attrs[SWITCH] if is_switch(func) else ()
    return tuple(str(name) for name in found)


def variants_in(mod: IRModule) -> list[str]:
    """The names of the functions of ``mod`` that are made for single sizes, in the order of its switch."""
    if all(gvar.name_hint != "main" for gvar in mod.get_global_vars()):
        return []
    return [name for name in called_by_switch(mod["main"]) if sizes_of(mod[name])]


def alone(mod: IRModule, variant: str) -> IRModule:
    """``mod`` with one of its variants as ``main``, like a model of these sizes, and the functions that it calls."""
    main = mod[variant].without_attr(SIZES).with_attr("global_symbol", "main")
    called = {gvar: mod[gvar] for gvar in reached(main, mod)}
    return IRModule({ir.GlobalVar("main"): main, **called}, attrs=mod.attrs, global_infos=mod.global_infos)


def has_loop(mod: IRModule) -> bool:
    """Whether a function of ``mod`` calls itself, or one that calls it."""
    functions = [func for func in mod.functions.values() if isinstance(func, relax.Function)]
    return any(mod[gvar].same_as(func) for func in functions for gvar in reached(func, mod))


def reached(func: relax.Function, mod: IRModule) -> list[ir.GlobalVar]:
    """The functions of ``mod`` that ``func`` calls, and those that they call."""
    seen: dict[ir.GlobalVar, None] = {}
    pending: list[ir.BaseFunc] = [func]
    while pending:
        mentioned: list[relax.Expr] = []
        relax.analysis.post_order_visit(pending.pop(), mentioned.append)
        for gvar in mentioned:
            if isinstance(gvar, ir.GlobalVar) and gvar not in seen:
                seen[gvar] = None
                if isinstance(mod[gvar], relax.Function):
                    pending.append(mod[gvar])
    return list(seen)
