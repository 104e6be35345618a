"""Variants: the model with its free sizes fixed to those of a sample, beside the model for all other sizes.

::

    before                                   after
    main(x: (n, 16)): body                   main(x: (n, 16)): main_n_1(x) if n == 1 else main_any_size(x)
                                             main_n_1(x: (1, 16)): body for n = 1
                                             main_any_size(x: (n, 16)): body

The variants are private functions, which every pass takes as it takes ``main``. They share equal constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tvm import ir, relax, tirx
from tvm.ir import IRModule

from ..annotations import PLAN
from ..errors import ModelError, first_line
from ..graph.free_sizes import with_bound_sizes
from ..graph.multiples import multiples
from ..graph.variants import LIKE, SIZES, UpTo, called_by_switch, like_of, range_of, with_range
from ..plan.plan import Plan
from ..tvm_private import give_type
from .merge import MergedModules
from .samples import (
    Samples,
    Sizes,
    are_single_tokens,
    between,
    by_default,
    can_have,
    combined,
    described,
    free_dimensions,
    has_negative_size,
    typical,
    weighed_by_default,
)
from .switch import dims_of, switch
from .weights import Weighted, weighted, with_others

GENERIC = "main_any_size"

_OWN = "plans of their own for "
"""The beginning of the remark that names the variants."""

_LONGEST_REASON = 200
"""The most letters of a reason in a remark about a variant that was left out."""

At = Callable[[Mapping[str, int]], IRModule]
"""The module of a model with these sizes of ``main`` fixed; raises the errors of TVM and of the importer."""


def bound(mod: IRModule) -> At:
    """A module at given sizes: numbers take the place of its symbolic variables."""
    return lambda sizes: with_bound_sizes(mod, sizes)


def varied(mod: IRModule, samples: Samples, at: At | None = None) -> tuple[IRModule, tuple[str, ...]]:
    """``mod`` with variants for ``samples``, or for likely sizes where none are given; remarks, if there are none.

    ``at`` makes the module for given sizes. With an empty list for a dimension ``mod`` does not change.
    """
    main = mod["main"]
    if not isinstance(main, relax.Function) or not free_dimensions(main):
        return mod, ()
    if samples:
        chosen = combined(samples)
        return with_variants(mod, chosen, at, samples) if chosen else (with_like(mod), ())
    likely = by_default(main)
    if not likely:
        liked = with_like(mod)
        return liked, (one_plan(liked, "shapes= or --shape give others"),)
    return with_variants(mod, combined(likely), at)


def with_variants(
    mod: IRModule, samples: Iterable[Sizes], at: At | None = None, weights: Samples | None = None
) -> tuple[IRModule, tuple[str, ...]]:
    """``mod`` with a function for each of the ``samples``, which ``main`` calls; if there are none, remarks say why.

    The plan of ``main`` has the remarks otherwise. A sample that the model cannot have, such as a length beyond its
    table of positions, is left out with a remark. ``weights`` may have the weights of sizes. Raises ModelError for
    names that are not free dimensions of ``main``.
    """
    main, make = mod["main"], at or bound(mod)
    merged = MergedModules()
    made: list[tuple[Sizes, ir.GlobalVar]] = []
    remarks: list[str] = []
    for sizes in samples:
        _check_names(main, sizes)
        name = "_".join(["main", *(f"{dim}_{size}" for dim, size in sizes.items())])
        try:
            _check_multiples(main, sizes)
            func, fixed = _variant(main, make(sizes), sizes)
        except Exception as error:  # of the importer, or TVM's own: types that do not fit these sizes
            remarks.append(f"no variant for {described(sizes)}: {first_line(error)[:_LONGEST_REASON]}")
            continue
        made.append((sizes, merged.add(name, func, fixed)))
    if not made:
        return with_like(mod), tuple(remarks)
    merged.add_public(mod)
    whole = _typed_main(mod)
    likely = weighted([sizes for sizes, _ in made], weights or {})
    whole_sizes = [({**like_of(merged.functions[gvar]), **sizes}, weight) for (sizes, gvar), (_, weight) in
                   zip(made, likely, strict=True)]  # fmt: skip
    chosen = with_range(_switched(merged, mod, made, whole_sizes), whole_sizes)
    remarks.insert(0, who_runs([sizes for sizes, _ in made], {}, GENERIC))
    plan = Plan(remarks=tuple(remarks), variants={gvar.name_hint: sizes for sizes, gvar in made})
    functions = {whole: PLAN.write(chosen, plan), **merged.functions}
    return relax.transform.Normalize()(
        IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
    ), ()


def _switched(
    merged: MergedModules,
    mod: IRModule,
    made: Sequence[tuple[Sizes, ir.GlobalVar]],
    likely: Sequence[Weighted],
) -> relax.Function:
    """The switch. Sizes without a variant run ``main`` as it is.

    Its plan is weighed over the ``likely`` sizes and over some between them, which have no variant.
    """
    main, sampled = mod["main"], [sizes for sizes, _ in made]
    generic = relax.utils.copy_with_new_vars(main).without_attr("global_symbol")
    generic = generic.with_attr(LIKE, typical(main, sampled))
    if not are_single_tokens(main, sampled):
        generic = with_range(generic, with_others(likely, between(main, [sizes for sizes, _ in likely])))
    return switch(main, made, merged.add(GENERIC, generic, mod))


def who_runs(own: Iterable[Mapping[str, int]], smaller: Mapping[str, UpTo], last: str) -> str:
    """The remark that says which functions run at which sizes.

    ``own``: the sizes of the variants. ``smaller``: functions for sizes up to a limit. ``last`` runs at all others.
    """
    named = "; ".join(map(described, own))
    limits = "".join(f"with {limit} {name}, otherwise " for name, limit in smaller.items())
    if named:
        return f"{_OWN}{named}; other sizes run {limits}{last}"
    return f"sizes {limits}{last}" if limits else f"one plan for all sizes: {last}"


def without_who_runs(remarks: Iterable[str]) -> tuple[str, ...]:
    """The remarks without that of :func:`who_runs`, if it names variants."""
    return tuple(remark for remark in remarks if not remark.startswith(_OWN))


def with_like(mod: IRModule, samples: Samples | None = None) -> IRModule:
    """``mod`` with annotations of ``main``: the size at which its kernels are measured, and the sizes over which its
    plan is weighed.

    They are those of the ``samples`` that the model can have, with their weights, else likely ones. Raises ModelError
    for names that are not free dimensions of ``main``.
    """
    main, chosen = mod["main"], combined(samples or {})
    for sizes in chosen:
        _check_names(main, sizes)
    given = [sizes for sizes in chosen if can_have(main, sizes)]
    like = typical(main, given)
    measured = main.with_attr(LIKE, like) if like else main
    weights = (
        weighted([{**like, **sizes} for sizes in given], samples or {})
        if given
        else weighted(weighed_by_default(main), {})
    )
    if len(weights) > 1:
        measured = with_range(measured, weights)
    changed = {mod.get_global_var("main"): measured}
    return IRModule(
        {**dict(mod.functions_items()), **changed}, attrs=mod.attrs, global_infos=mod.global_infos
    )


def one_plan(mod: IRModule, why: str) -> str:
    """The remark on a module of :func:`with_like`: the sizes at which its kernels are measured, and ``why`` no others.

    ``why`` is not said if no sizes were found that the model can have.
    """
    like = like_of(mod["main"])
    if not like:
        return (
            "one plan for all sizes; no sizes were found that fit: shapes= or --shape give some to measure at"
        )
    measured = [sizes for sizes, _ in range_of(mod["main"])] or [like]
    return f"one plan for all sizes, measured at {'; '.join(map(described, measured))}: {why}"


def _typed_main(mod: IRModule) -> ir.GlobalVar:
    """The global variable of ``main``. One without a type, which nothing can call, stays as it is in ``mod``."""
    known = mod.get_global_var("main")
    if not known.ty.is_missing():
        return known
    gvar = ir.GlobalVar("main")
    give_type(gvar, mod["main"].ty)
    return gvar


def _check_names(main: relax.Function, sizes: Sizes) -> None:
    free = free_dimensions(main)
    for name in sizes:
        if name not in free:
            raise ModelError(f"main has no symbolic size {name!r}; it has {', '.join(free) or 'none'}")


def _check_multiples(main: relax.Function, sizes: Sizes) -> None:
    """Raises ModelError for a size that calls of the model cannot have, since it is not a multiple."""
    of = multiples(main)
    for name, size in sizes.items():
        if size % of.get(name, 1):
            raise ModelError(f"{name} is a multiple of {of[name]}")


def _variant(main: relax.Function, mod: IRModule, sizes: Sizes) -> tuple[relax.Function, IRModule]:
    """A private copy of the ``main`` of a module with these sizes, and the module; raises ModelError for others."""
    func = relax.utils.copy_with_new_vars(mod["main"])
    for param, symbolic in zip(func.params, main.params, strict=True):
        if not _fits(param.ty, symbolic.ty, sizes):
            raise ModelError(f"{param.name} is {param.ty}, and {symbolic.ty} otherwise")
    if has_negative_size(func):
        raise ModelError("a window would be longer than what it moves over")
    func = func.without_attr("global_symbol").with_attr(SIZES, dict(sizes))
    left = typical(func)
    if open_names := ", ".join(name for name in free_dimensions(func) if name not in left):
        raise ModelError(
            f"no sizes of {open_names} were found that fit, at which its kernels could be measured"
        )
    return (func.with_attr(LIKE, left) if left else func), mod


def _fits(ty: ir.Type, symbolic: ir.Type, sizes: Sizes) -> bool:
    """Whether a parameter of a variant has its original type, with numbers for the symbols that have a size."""
    dims, symbols = dims_of(ty), dims_of(symbolic)
    return len(dims) == len(symbols) and all(
        isinstance(dim, tirx.IntImm) and int(dim.value) == sizes[symbol.name]
        for dim, symbol in zip(dims, symbols, strict=True)
        if isinstance(symbol, ir.Var) and symbol.name in sizes
    )


def in_order(plans: Mapping[str, Plan], mod: IRModule) -> dict[str, Plan]:
    """Plans by function: that of ``main`` first, then those of its variants from small to large, then all others."""
    first = ["main", *called_by_switch(mod["main"])]
    return {name: plans[name] for name in dict.fromkeys([*first, *plans]) if name in plans}
