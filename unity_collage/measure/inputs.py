"""Inputs for a kernel: of the right dtype, and of values that the operators are made for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes  # registers bfloat16 with numpy
import numpy as np
from tvm import relax

from ..annotations import LIFTED
from ..graph.calls import calls, operators

_POSITIVE_OPS = frozenset(
    {"relax.log", "relax.sqrt", "relax.rsqrt", "relax.power", "relax.log2", "relax.log10"}
)
_DIVIDING_OPS = frozenset(
    f"relax.{name}" for name in ("divide", "floor_divide", "mod", "floor_mod", "remainder", "rsqrt")
)
_RECURRENT_OPS = frozenset({"relax.collage.lstm", "relax.collage.gru", "relax.collage.rnn"})
_UNSTABLE_ORDER_OPS = frozenset({"relax.argsort", "relax.sort", "relax.topk"})
"""Equal elements come out in any order."""
_INDEX_ARGS = {
    "relax.take": (1, 0),
    "relax.gather_elements": (1, 0),
    "relax.gather_nd": (1, 0),
}
"""Operator -> (position of the index argument, position of the indexed one)."""

_LINEAR_OPS = frozenset({"relax.matmul", "relax.sum", "relax.mean", "relax.variance"})
_LARGE, _LARGE_EXPONENT, _LARGE_SUM = 1e3, 50.0, 4.0
"""Large values: in general; where an exponential is taken, which overflows at 88; and where the range of a sum is cut
down again, so that its rounding error weighs more."""
_EXPONENTIAL_OPS = frozenset(
    f"relax.{name}"
    for name in (
        "exp", "sigmoid", "tanh", "sinh", "cosh", "erf", "power", "sin", "cos", "tan", "nn.silu", "nn.softplus",
        "nn.softmax", "nn.log_softmax", "nn.gelu", "nn.gelu_tanh", "nn.attention",
    )
)  # fmt: skip

_DISTINCT = 1_048_573
"""So many numbers at most are drawn for one array; a prime."""

_CUTTING_OPS = _EXPONENTIAL_OPS | {"relax.clip", "relax.minimum", "relax.maximum"}


@dataclass(frozen=True)
class _Domain:
    """What the operators of a function take."""

    bounds: dict[relax.Var, int]
    """For integer parameters that index something, how many there are to choose from."""
    positive: frozenset[relax.Var]
    recurrent: frozenset[relax.Var]
    """What a state is multiplied by, step after step."""
    divides: bool
    large: float


Draw = Callable[[np.random.Generator, tuple[int, ...], np.dtype, relax.Var, _Domain], np.ndarray]


def random_inputs(func: relax.Function, seed: int = 0) -> list[np.ndarray]:
    """One array for each parameter of ``func``: static shapes, in order, equal for equal ``seed``."""
    return _inputs(func, seed, len(func.params), _random)


def edge_inputs(
    func: relax.Function, seed: int = 1, constants: Sequence[np.ndarray] | None = None
) -> list[np.ndarray]:
    """Inputs of zeros, denormals, large, small and negative values in any order, as far as the operators' domain
    goes; indexes are the first and the last.

    Lifted constants are no inputs: they are those of :func:`random_inputs`, which the caller may have at hand. Where
    equal elements make the result ambiguous, the inputs have no edges.
    """
    lifted = int(func.attrs[LIFTED]) if func.attrs and LIFTED in func.attrs else 0
    first = len(func.params) - lifted
    draw = _random if operators(func) & _UNSTABLE_ORDER_OPS else _edges
    same = random_inputs(func)[first:] if constants is None else list(constants)
    return _inputs(func, seed, first, draw) + same


def _inputs(func: relax.Function, seed: int, count: int, draw: Draw) -> list[np.ndarray]:
    """Arrays for the first ``count`` parameters.

    The first parameter of a shape is the same in all functions, so is the second: a product that many functions begin
    with then has the same operands in all of them, and its reference is computed once.
    """
    domain, seen = _domain(func), Counter[tuple[int, ...]]()
    arrays: list[np.ndarray] = []
    for param in func.params[:count]:
        shape = tuple(int(extent) for extent in param.ty.shape.values)
        dtype = np.dtype(str(param.ty.dtype))
        rng = np.random.default_rng((seed, seen[shape], *shape))
        seen[shape] += 1
        arrays.append(draw(rng, shape, dtype, param, domain).astype(dtype, copy=False))
    return arrays


def _random(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, param: relax.Var, domain: _Domain
) -> np.ndarray:
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, domain.bounds.get(param, 10), shape)
    values = _normal(rng, shape)
    if param in domain.recurrent:  # larger ones make chaos: a last bit grows to anything
        return values / np.float32(np.sqrt(shape[0]))
    return np.abs(values) + np.float32(0.1) if param in domain.positive else values


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Normally distributed numbers, the same again and again in large arrays: drawing them takes ten times as long as
    copying, and the number of different ones, a prime, meets no stride of a kernel."""
    values = np.empty(math.prod(shape), np.float32)
    drawn = rng.standard_normal(min(values.size, _DISTINCT), dtype=np.float32)
    for begin in range(0, values.size, _DISTINCT):
        part = values[begin : begin + _DISTINCT]
        part[...] = drawn[: part.size]
    return values.reshape(shape)


def _edges(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, param: relax.Var, domain: _Domain
) -> np.ndarray:
    if dtype == np.bool_:
        return rng.random(shape) < 0.1
    if np.issubdtype(dtype, np.integer):
        return _picked(rng, shape, _integer_edges(dtype, domain.bounds.get(param), domain.divides))
    values = _float_edges(dtype, domain.large, domain.divides)
    if param in domain.positive:
        return _picked(rng, shape, (values + 1e-3).astype(dtype))
    return _picked(rng, shape, np.concatenate([values, -values]).astype(dtype))


def _picked(rng: np.random.Generator, shape: tuple[int, ...], values: np.ndarray) -> np.ndarray:
    """Of few ``values`` one for each element."""
    return values[rng.integers(0, len(values), shape, dtype=np.uint8)]


def _integer_edges(dtype: np.dtype, bound: int | None, divides: bool) -> np.ndarray:
    if bound is not None:
        return np.array([0, bound - 1])
    values = [1, 2, 100] if divides else [0, 1, 100]
    return np.array(values + [-value for value in values] if dtype.kind == "i" else values)


def _float_edges(dtype: np.dtype, large: float, divides: bool) -> np.ndarray:
    """Magnitudes, zero and the usual ones more often than others."""
    info = ml_dtypes.finfo(dtype)
    denormal = float(info.smallest_subnormal)
    large = min(large, _LARGE_SUM * 2) if dtype.itemsize < 4 else large
    nothing = [1e-3] * 4 if divides else [0.0, 0.0, 0.0, denormal]
    return np.array([*nothing, 1e-3, 0.5, 1.0, 2.0, 3.0, large])


def _domain(func: relax.Function) -> _Domain:
    names = operators(func)
    params = func.params if names & _POSITIVE_OPS else _variances(func)
    recurrent = (call.args[1] for call in calls(func) if call.op.name in _RECURRENT_OPS)
    return _Domain(
        _index_bounds(func),
        frozenset(params),
        frozenset(weights for weights in recurrent if isinstance(weights, relax.Var)),
        bool(names & _DIVIDING_OPS),
        _large(names),
    )


def _large(names: frozenset[str]) -> float:
    sums = any(name in _LINEAR_OPS or ".conv" in name or "norm" in name for name in names)
    if "relax.nn.attention" in names or (sums and names & _CUTTING_OPS):
        return _LARGE_SUM
    return _LARGE_EXPONENT if names & _EXPONENTIAL_OPS else _LARGE


def _index_bounds(func: relax.Function) -> dict[relax.Var, int]:
    bounds: dict[relax.Var, int] = {}
    for call in calls(func):
        if call.op.name not in _INDEX_ARGS:
            continue
        position, data = _INDEX_ARGS[call.op.name]
        axis = getattr(call.attrs, "axis", None)
        extents = [int(extent) for extent in call.args[data].ty.shape.values]
        bound = min(extents) if axis is None else extents[int(axis)]
        index = call.args[position]
        if isinstance(index, relax.Var):
            bounds[index] = min(bound, bounds.get(index, bound))
    return bounds


def _variances(func: relax.Function) -> set[relax.Var]:
    """Parameters that a batch norm takes as variance."""
    norms = [call for call in calls(func) if call.op.name == "relax.nn.batch_norm"]
    return {call.args[4] for call in norms if isinstance(call.args[4], relax.Var)}
