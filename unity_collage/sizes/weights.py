"""Weights: which part of all calls each sample size stands for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import cast

from ..errors import ModelError
from .samples import Samples, Sizes

Weighted = tuple[Sizes, float]
"""Sizes, and the part of all calls that have them."""


def weighted(chosen: Iterable[Sizes], samples: Samples) -> list[Weighted]:
    """The ``chosen`` sizes with their weights, which add up to 1.

    ``samples``: sizes by dimension; a mapping has a weight for each size. Dimensions are independent of each other, and
    sizes without weights are equally likely. Raises ModelError for a weight that is not a positive number.
    """
    by_name = {name: weights_of(name, sizes) for name, sizes in samples.items() if len(sizes)}
    found = [(sizes, math.prod(by_name[name][size] if by_name.get(name) else 1.0
                               for name, size in sizes.items())) for sizes in chosen]  # fmt: skip
    total = math.fsum(weight for _, weight in found)
    return [(sizes, weight / total) for sizes, weight in found]


def with_others(chosen: Sequence[Weighted], others: Sequence[Sizes]) -> list[Weighted]:
    """``chosen`` sizes and ``others``, from few elements to many, with weights that add up to 1.

    The others have half of all weight: most of the chosen sizes will have a variant, which runs there instead.
    """
    if not others:
        return list(chosen)
    halved = [(sizes, weight / 2) for sizes, weight in chosen]
    found = [*halved, *((sizes, 0.5 / len(others)) for sizes in others)]
    return sorted(found, key=lambda each: math.prod(each[0].values()))


def weights_of(name: str, sizes: Sequence[int] | Mapping[int, float]) -> dict[int, float]:
    """The weight of each size of a dimension; empty where all are equally likely."""
    if not isinstance(sizes, Mapping):
        return {}
    weights: dict[int, float] = {}
    for size, given in cast("Mapping[int, object]", sizes).items():
        weight = float(given) if isinstance(given, Real) else math.nan
        if not (weight > 0 and math.isfinite(weight)):
            raise ModelError(f"the weight {given} of {name} {size} is not a positive number")
        weights[int(size)] = weight
    return weights
