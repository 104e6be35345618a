"""Sample sizes: the sizes of free dimensions for which a model gets variants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, product
from operator import index

from tvm import ir, relax, tirx
from tvm_ffi import structural_equal

from ..errors import ModelError
from ..graph.multiples import multiples
from ..graph.shapes import shape_of
from ..graph.variants import at_sizes
from .switch import dims_of

Samples = Mapping[str, Sequence[int] | Mapping[int, float]]
"""Sizes by the name of a dimension; a ``range`` stands for some of its members, a mapping has weights of the sizes."""

Sizes = dict[str, int]
"""A size for each dimension of a variant, by name."""

MOST = 16
"""The most variants. Each is compiled like a model of its own."""

MOST_BY_DEFAULT = 4
"""The most variants if the user names no sizes, and the number of members that stand for a range."""

_BATCHES = (1, 8, 32)
_FEW_BATCHES = (1, 8)
_LENGTHS = (16, 32, 64, 128)
_FEW_LENGTHS = (32, 128)
"""The sizes of a batch and of a length; fewer where both are free. Lengths that a model cannot have are left out."""


_UNKNOWN, _OF_IMAGES = 64, 224
"""The sizes at which kernels are measured along unknown dimensions. The second is for dimensions after the second axis,
which are the height or width of an image.
"""
_OF_LARGER_IMAGES = (320, 416)
"""The sizes of a second image. The fastest kernel at one size may be slow at others: there a library has other code, or
rows of its tensors map to the same sets of a cache."""

_OTHERS = (1, 16, 64, 256)
"""Sizes that are tried for all free dimensions where a model cannot have the typical ones."""
_MOST_ELEMENTS = 2**26
"""The most elements of the inputs of free sizes, at sizes that no user gave."""


def combined(samples: Samples) -> list[Sizes]:
    """The sizes of each variant, the smallest first: every combination of ``samples``.

    A dimension without a sample has no part in it. Raises ModelError for sizes below 1, and for too many combinations.
    """
    chosen = {name: _distinct(name, sizes) for name, sizes in samples.items() if len(sizes)}
    if not chosen:
        return []
    if (count := math.prod(map(len, chosen.values()))) > MOST:
        counts = " x ".join(f"{len(sizes)} of {name}" for name, sizes in chosen.items())
        raise ModelError(
            f"{counts} are {count} combinations of sizes: give at most {MOST}, each is compiled for itself"
        )
    found = [dict(zip(chosen, sizes, strict=True)) for sizes in product(*chosen.values())]
    return sorted(found, key=lambda sizes: (_volume(sizes), *sizes.values()))


def _distinct(name: str, sizes: Sequence[int] | Mapping[int, float]) -> list[int]:
    spread = members_of(sizes) if isinstance(sizes, range) else sizes
    try:
        found = sorted({index(size) for size in spread})
    except TypeError:
        raise ModelError(
            f"the sample sizes of the dimension {name!r} are whole numbers, not {[*spread]}"
        ) from None
    if found[0] < 1:
        raise ModelError(f"the sample size {found[0]} of the dimension {name!r} is not positive")
    return found


def members_of(sizes: range, most: int = MOST_BY_DEFAULT) -> list[int]:
    """Members of a range that stand for it: its ends, and those nearest to powers of two spread evenly between them."""
    ordered = sizes if sizes.step > 0 else sizes[::-1]
    if len(ordered) <= most or ordered[-1] < 1:
        return list(ordered)
    positive = ordered[max(0, -((ordered.start - 1) // ordered.step)) :]
    low, high = positive[0], positive[-1]
    step = math.log2(high / low) / (most - 1)
    powers = [2 ** round(math.log2(low) + step * place) for place in range(1, most - 1)]
    return sorted({low, high, *(_nearest(positive, near) for near in powers)})


def _nearest(ascending: range, size: int) -> int:
    """The member nearest to ``size``, the smaller one of two; a range may have more members than can be looked at."""
    place = (size - ascending.start + (ascending.step - 1) // 2) // ascending.step
    return ascending[min(max(place, 0), len(ascending) - 1)]


def between(main: relax.Function, samples: Sequence[Sizes]) -> list[Sizes]:
    """Sizes that are none of the ``samples``, at which a plan for all sizes is weighed too; the smaller one first.

    They are between the two smallest and between the two largest samples of the dimension with the most samples. Others
    have their smallest sample. Odd sizes are taken where ``main`` can have them: samples are mostly multiples of the
    tiles and vectors of kernels, which waste work at other sizes. Empty where no dimension has two samples.
    """
    by_name = {name: sorted({sizes[name] for sizes in samples}) for name in (samples[0] if samples else {})}
    longest = max(by_name, key=lambda name: len(by_name[name]), default="")
    pairs = list(pairwise(by_name.get(longest, [])))
    found: list[Sizes] = []
    for low, high in dict.fromkeys([*pairs[:1], *pairs[-1:]]):
        size = _middle(low, high, multiples(main).get(longest, 1))
        sizes = {name: size if name == longest else few[0] for name, few in by_name.items()}
        if size and can_have(main, sizes):
            found.append(sizes)
    return found


def _middle(low: int, high: int, unit: int) -> int:
    """An odd multiple of ``unit`` near the geometric mean of two sizes, or an even one; 0 if none is between."""
    inner = range(low // unit + 1, -(-high // unit))
    mean = math.sqrt(low * high) / unit
    return min(inner, key=lambda count: (count % 2 == 0, abs(count - mean)), default=0) * unit


def _volume(sizes: Sizes) -> int:
    return math.prod(sizes.values())


def free_dimensions(main: relax.Function) -> dict[str, set[int]]:
    """The symbolic sizes of the parameters of ``main`` by name, and the axes that have them."""
    found: dict[str, set[int]] = {}
    for param in main.params:
        shape = getattr(param.ty, "shape", None)
        for axis, dim in enumerate(getattr(shape, "values", ())):
            if isinstance(dim, ir.Var):
                found.setdefault(dim.name, set()).add(axis)
    return found


def by_default(main: relax.Function) -> dict[str, tuple[int, ...]]:
    """Likely sample sizes for the free dimensions of a model; empty if no sizes are likely.

    A dimension that is always the first one is a batch. A single other one is a length. A decoder with a cache makes
    one token at a time, with any number of earlier ones. For several other dimensions, such as the height and width of
    an image, no sizes are more likely than others. If a dimension is a multiple, so are its sizes.
    """
    free = free_dimensions(main)
    batches = [name for name, axes in free.items() if axes == {0} and not _is_length(main, name)]
    lengths = [name for name in free if name not in batches]
    cache = _cache_of(main)
    if cache is not None and len(batches) < 2 and {*cache} == {*lengths}:
        return dict.fromkeys([*batches, cache[1]], (1,))
    if len(batches) > 1 or len(lengths) > 1:
        return {}
    if batches and lengths:
        found = {batches[0]: _FEW_BATCHES, lengths[0]: _FEW_LENGTHS}
    else:
        found = {**dict.fromkeys(batches, _BATCHES), **dict.fromkeys(lengths, _LENGTHS)}
    of = multiples(main)
    left = {
        name: tuple(size for size in sizes if size % of.get(name, 1) == 0) for name, sizes in found.items()
    }
    return left if all(left.values()) else {}


def typical(main: relax.Function, samples: Iterable[Sizes] = ()) -> Sizes:
    """A size for each free dimension of ``main``, at which kernels for all sizes are measured.

    The middle one of the samples where the dimension has some, else of the likely ones. Where no sizes are likely, a
    batch is 1, and the height or width of an image 224. Where single tokens are the only sample, other calls read more
    of them: kernels for these are measured at the usual length. A model may not have these sizes, as one with a window
    that is longer. Then it is the first of other sizes that it can have. Empty if there are none: no kernel is
    measured.
    """
    given, free = list(samples), free_dimensions(main)
    likely, of, cache = by_default(main), multiples(main), _cache_of(main) or ()

    def middle(name: str, axes: set[int]) -> int:
        guess = 1 if axes == {0} else _OF_IMAGES if min(axes) >= 2 and name not in cache else _UNKNOWN
        sizes = sorted({sizes[name] for sizes in given if name in sizes}) or sorted(likely.get(name, ()))
        if sizes == [1] and name in cache[1:] and are_single_tokens(main, given):
            sizes = []
        return sizes[len(sizes) // 2] if sizes else at_least(guess, name)

    def at_least(size: int, name: str) -> int:
        unit = of.get(name, 1)
        return max(size // unit, 1) * unit

    if not free:
        return {}
    first = {name: middle(name, axes) for name, axes in free.items()}
    if given and can_have(main, first):
        return first
    equal = ({name: at_least(size, name) for name in free} for size in _OTHERS)
    tried = (sizes for sizes in (first, *equal) if _are_few_elements(main, sizes))
    return next((sizes for sizes in tried if can_have(main, sizes)), {})


def weighed_by_default(main: relax.Function) -> list[Sizes]:
    """The sizes at which a plan of ``main`` for all sizes is weighed where a user gives none; empty if they are not
    known.

    They are the likely ones. For images, which have none, they are the typical size and that of a larger one.
    """
    if likely := [sizes for sizes in combined(by_default(main)) if can_have(main, sizes)]:
        return likely
    like, free, of = typical(main), free_dimensions(main), multiples(main)
    edges = [name for name, axes in free.items() if min(axes) >= 2 and name not in (_cache_of(main) or ())]
    if not like or not edges:
        return []
    larger = dict(like)
    for number, name in enumerate(edges):
        size, unit = _OF_LARGER_IMAGES[number % 2], of.get(name, 1)
        larger[name] = max(size // unit, 1) * unit
    others = larger != like and _are_few_elements(main, larger) and can_have(main, larger)
    return [like, larger] if others else []


def _cache_of(main: relax.Function) -> tuple[str, str] | None:
    """The dimensions of a decoder's cache: the number of earlier tokens, and that of new ones; None for other models.

    Two inputs and two results at least, keys and values, are alike but for ``past`` there and ``past + new`` here.
    """
    free = free_dimensions(main)
    results = main.ret_ty.fields if isinstance(main.ret_ty, relax.TupleType) else [main.ret_ty]
    found: dict[tuple[str, str], list[set[int]]] = {}
    for i, j in product(range(len(main.params)), range(len(results))):
        names = _grown(dims_of(main.params[i].ty), dims_of(results[j]))
        if names is not None and free.keys() >= {*names}:
            inputs, outputs = found.setdefault(names, [set(), set()])
            inputs.add(i)
            outputs.add(j)
    pairs = [names for names, places in found.items() if min(map(len, places)) > 1]
    return pairs[0] if len(pairs) == 1 else None


def _grown(before: Sequence[ir.Expr], after: Sequence[ir.Expr]) -> tuple[str, str] | None:
    """The names of ``past`` and ``new`` if ``after`` is ``before`` with ``past + new`` in place of one ``past``."""
    if len(before) != len(after):
        return None
    apart = [(a, b) for a, b in zip(before, after, strict=True) if not structural_equal(a, b)]
    if len(apart) != 1:
        return None
    ((past, total),) = apart
    if not isinstance(past, ir.Var) or not isinstance(total, tirx.Add):
        return None
    others = [side for side in (total.a, total.b) if isinstance(side, ir.Var) and not side.same_as(past)]
    is_sum = any(side.same_as(past) for side in (total.a, total.b))
    return (past.name, others[0].name) if is_sum and len(others) == 1 else None


def are_single_tokens(main: relax.Function, samples: Iterable[Sizes]) -> bool:
    """Whether ``main`` is a decoder with a cache, and all samples make one token behind any number of earlier ones.

    Then all other calls read prompts.
    """
    cache = _cache_of(main)
    return cache is not None and all(sizes.get(cache[1]) == 1 and cache[0] not in sizes for sizes in samples)


def can_have(main: relax.Function, sizes: Sizes) -> bool:
    """Whether all types of ``main`` fit these sizes, and no value is empty because of them."""
    try:
        fixed = at_sizes(main, sizes)
    except Exception:  # TVM's own errors: types that do not fit these sizes
        return False
    return not has_negative_size(fixed) and _count_empty(fixed) == _count_empty(main)


def _count_empty(func: relax.Function) -> int:
    """How many values have no elements: kernels on them have no costs that say anything."""
    shapes = [dims_of(var.ty) for var in _variables(func)]
    return sum(any(isinstance(dim, tirx.IntImm) and int(dim.value) == 0 for dim in dims) for dims in shapes)


def _are_few_elements(main: relax.Function, sizes: Sizes) -> bool:
    """Whether inputs of these free sizes have a number of elements that can be tried."""
    total = 0
    for param in main.params:
        dims = getattr(getattr(param.ty, "shape", None), "values", ())
        if any(isinstance(dim, ir.Var) for dim in dims):
            known = [sizes.get(dim.name, 1) if isinstance(dim, ir.Var) else dim for dim in dims]
            total += math.prod(int(dim) for dim in known if isinstance(dim, (int, tirx.IntImm)))
    return total <= _MOST_ELEMENTS


def has_negative_size(func: relax.Function) -> bool:
    """Whether a value has a negative size: TVM gives one to a window beyond the end."""
    shapes = (shape_of(var) for var in _variables(func))
    return any(size < 0 for shape in shapes for size in shape or ())


def _variables(func: relax.Function) -> list[relax.Var]:
    """The variables that a function reads."""
    found: list[relax.Expr] = []
    relax.analysis.post_order_visit(func, found.append)
    return [expr for expr in found if isinstance(expr, relax.Var)]


def _is_length(main: relax.Function, name: str) -> bool:
    """Whether the dimension occurs in inputs of one axis only: a sequence without a batch."""
    shapes = [getattr(getattr(param.ty, "shape", None), "values", ()) for param in main.params]
    ranks = [
        len(dims) for dims in shapes if any(isinstance(dim, ir.Var) and dim.name == name for dim in dims)
    ]
    return max(ranks, default=0) < 2


def described(sizes: Mapping[str, int]) -> str:
    """``batch 1, length 32``."""
    return ", ".join(f"{name} {size}" for name, size in sizes.items())
