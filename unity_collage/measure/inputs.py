"""Inputs for a kernel: of the right dtype, with values in the domain of its operators."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes  # registers bfloat16 with numpy
import numpy as np
from tvm import relax

from ..annotations import LIFTED
from ..backends.native.values import scalar_of
from ..errors import CollageError
from ..graph.calls import calls, op_name, operators
from ..graph.dataflow import used_vars
from ..graph.shapes import dtype_of, extents_of
from ..rules.base import why_not_static
from .index_bounds import index_bounds
from .large_integers import INEXACT, large_integers
from .prim_inputs import operators_inside
from .signs import POSITIVE_OPS, positive_params

_DIVIDING_OPS = frozenset(
    f"relax.{name}" for name in ("divide", "floor_divide", "mod", "floor_mod", "remainder", "rsqrt")
)
_RECURRENT_OPS = frozenset({"relax.collage.lstm", "relax.collage.gru", "relax.collage.rnn"})
_UNSTABLE_ORDER_OPS = frozenset({"relax.argsort", "relax.sort", "relax.topk"})
"""Operators that return equal elements in any order."""
_LINEAR_OPS = frozenset({"relax.matmul", "relax.sum", "relax.mean", "relax.variance"})
_LARGE, _LARGE_EXPONENT, _LARGE_SUM = 1e3, 50.0, 4.0
"""Large values: in general; for exponentials, which overflow at 88; and for sums that are clipped afterwards, where
the rounding error is a larger part of the result.
"""
_EXPONENTIAL_OPS = frozenset(
    f"relax.{name}"
    for name in (
        "exp", "sigmoid", "tanh", "sinh", "cosh", "erf", "power", "sin", "cos", "tan", "nn.silu", "nn.softplus",
        "nn.softmax", "nn.log_softmax", "nn.gelu", "nn.gelu_tanh", "nn.attention",
    )
)  # fmt: skip

_FEW_PRODUCTS = 3
"""If more products and convolutions than this follow each other in a function, its weights are small. Otherwise values
would grow from layer to layer until they overflow."""

_DISTINCT = 1_048_573
"""The most random numbers that are drawn for one array; a prime."""

_CUTTING_OPS = _EXPONENTIAL_OPS | {"relax.clip", "relax.minimum", "relax.maximum"}


@dataclass(frozen=True)
class _Domain:
    """The values that the operators of a function accept."""

    bounds: dict[relax.Var, int]
    """For integer parameters that are indexes: the extent of the axis that they index."""
    positive: frozenset[relax.Var]
    recurrent: frozenset[relax.Var]
    """Weights that a recurrent state is multiplied by in each step."""
    terms: dict[relax.Var, int]
    """For weights of deep functions: how many terms the sums have in which they are factors."""
    factors: dict[relax.Var, float]
    """For factors of sums of integers that are quantised later: by what they are multiplied."""
    large_integers: frozenset[int]
    """The sizes in bytes of the integer types with large numbers."""
    divides: bool
    large: float


Draw = Callable[[np.random.Generator, tuple[int, ...], np.dtype, relax.Var, _Domain], np.ndarray]


def why_not_drawn(param: relax.Var) -> str | None:
    """Why no inputs can be drawn for a parameter, such as one without a static shape; None if they can."""
    if not isinstance(param.ty, relax.TensorType):
        return f"parameter {param.name} is not a tensor, and inputs are made for tensors only"
    return why_not_static(param)


def random_inputs(func: relax.Function, seed: int = 0) -> list[np.ndarray]:
    """One array for each parameter of ``func``; the same ``seed`` gives the same arrays.

    Raises CollageError where a parameter is not a tensor of static shape (:func:`why_not_drawn`).
    """
    return _inputs(func, seed, len(func.params), _random)


def edge_inputs(
    func: relax.Function, seed: int = 1, constants: Sequence[np.ndarray] | None = None
) -> list[np.ndarray]:
    """Inputs of zeros, denormals, large, small and negative values in the domain of the operators.

    Bytes are also the ends of their range, and larger integers ``INEXACT``, where no right kernel overflows. Indexes
    are the first and the last. Lifted constants are not inputs: they are those of :func:`random_inputs`, which the
    caller may pass as ``constants``. Where equal elements make a result ambiguous, the inputs are random.
    """
    lifted = int(func.attrs[LIFTED]) if func.attrs and LIFTED in func.attrs else 0
    first = len(func.params) - lifted
    draw = _random if operators(func) & _UNSTABLE_ORDER_OPS else _edges
    same = random_inputs(func)[first:] if constants is None else list(constants)
    return _inputs(func, seed, first, draw) + same


def _inputs(func: relax.Function, seed: int, count: int, draw: Draw) -> list[np.ndarray]:
    """Arrays for the first ``count`` parameters.

    The n-th parameter of a shape has equal values in all functions. Functions that begin with the same product then
    give it the same operands, and its reference is computed once.
    """
    domain, seen = _domain(func), Counter[tuple[int, ...]]()
    arrays: list[np.ndarray] = []
    for param in func.params[:count]:
        if reason := why_not_drawn(param):
            raise CollageError(reason)
        shape = extents_of(param)
        dtype = np.dtype(dtype_of(param))
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
        if param in domain.bounds:
            return rng.integers(0, domain.bounds[param], shape)
        return rng.integers(1 if domain.divides else 0, 10, shape)  # a division by zero ends the process
    values = _normal(rng, shape)
    if param in domain.recurrent:  # with larger weights a rounding error grows without bound over the steps
        return values / np.float32(np.sqrt(shape[0]))
    is_positive = param in domain.positive
    if is_positive:
        values = np.abs(values) + np.float32(0.1)
    if param in domain.terms:  # the terms of a sum have other signs, or all the same
        terms = domain.terms[param]
        values *= np.float32(1 / terms if is_positive else np.sqrt(2 / terms))
    values *= np.float32(domain.factors.get(param, 1.0))
    return values


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Normally distributed numbers. Large arrays repeat them, since drawing takes ten times as long as copying.

    The period is a prime, so that it is not a multiple of any stride of a kernel.
    """
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
        return _picked(rng, shape, _integer_edges(dtype, domain.bounds.get(param), domain))
    values = _float_edges(dtype, domain.large, domain.divides)
    if param in domain.positive:
        return _picked(rng, shape, (values + 1e-3).astype(dtype))
    return _picked(rng, shape, np.concatenate([values, -values]).astype(dtype))


def _picked(rng: np.random.Generator, shape: tuple[int, ...], values: np.ndarray) -> np.ndarray:
    """A random one of the few ``values`` for each element."""
    return values[rng.integers(0, len(values), shape, dtype=np.uint8)]


def _integer_edges(dtype: np.dtype, bound: int | None, domain: _Domain) -> np.ndarray:
    if bound is not None:
        return np.array([0, bound - 1])
    values = [1, 2, 100] if domain.divides else [0, 1, 100]
    is_large, is_signed = dtype.itemsize in domain.large_integers, dtype.kind == "i"
    if is_large:
        values.append(min(int(np.iinfo(dtype).max), INEXACT))
    if is_signed:
        values += [-value for value in values]
    if is_large and is_signed and dtype.itemsize == 1 and not domain.divides:  # -128 / -1 is not a byte
        values.append(-128)
    return np.array(values)


def _float_edges(dtype: np.dtype, large: float, divides: bool) -> np.ndarray:
    """Magnitudes; zero and ordinary ones occur more than once."""
    info = ml_dtypes.finfo(dtype)
    denormal = float(info.smallest_subnormal)
    large = min(large, _LARGE_SUM * 2) if dtype.itemsize < 4 else large
    nothing = [1e-3] * 4 if divides else [0.0, 0.0, 0.0, denormal]
    return np.array([*nothing, 1e-3, 0.5, 1.0, 2.0, 3.0, large])


def _domain(func: relax.Function) -> _Domain:
    inside = operators_inside(func)
    names = operators(func) | inside
    recurrent = (call.args[1] for call in calls(func) if op_name(call) in _RECURRENT_OPS)
    return _Domain(
        index_bounds(func),
        frozenset(func.params) if inside & POSITIVE_OPS else positive_params(func),
        frozenset(weights for weights in recurrent if isinstance(weights, relax.Var)),
        _terms(func),
        _factors(func),
        large_integers(func),
        bool(names & _DIVIDING_OPS),
        _large(names),
    )


def _terms(func: relax.Function) -> dict[relax.Var, int]:
    """The number of terms for each parameter that is a weight; empty where few products follow each other.

    With weights of the variance 2 / terms, values keep their size behind a ReLU (He et al., 2015).
    """
    found = {
        weights: _terms_of(call)
        for call in calls(func)
        if _is_product(call) and isinstance(weights := call.args[1], relax.Var) and weights in func.params
    }
    return found if found and _most_in_a_row(func) > _FEW_PRODUCTS else {}


def _is_product(value: relax.Expr) -> bool:
    name = op_name(value)
    return name == "relax.matmul" or ".conv" in name


def _terms_of(product: relax.Call) -> int:
    """The number of terms of each sum."""
    shape = extents_of(product.args[1])
    if op_name(product) == "relax.matmul":
        return shape[max(0, len(shape) - 2)] if shape else 1
    return math.prod(shape) // shape[str(product.attrs.kernel_layout).index("O")]


_STEPS, _MEAN_PRODUCT = 40.0, 20.0
"""The usual size of a quantised number in steps, and that of a product of two random integers."""


def _factors(func: relax.Function) -> dict[relax.Var, float]:
    """By what the factors of integer sums are multiplied, so that what is quantised behind them is within its range.

    A check would prove little if nearly all results were the ends of the range.
    """
    scales = [scalar_of(call.args[1]) for call in calls(func) if op_name(call) == "relax.quantize"]
    if not scales or scales[0] is None:
        return {}
    terms: dict[relax.Expr, int] = {}
    found: dict[relax.Var, float] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not isinstance(call, relax.Call):
                continue
            if _is_product(call) and "int" in dtype_of(call):
                terms[binding.var] = _terms_of(call)
            elif op_name(call) in ("relax.astype", "relax.add") and call.args[0] in terms:
                terms[binding.var] = terms[call.args[0]]
            elif op_name(call) == "relax.multiply" and call.args[0] in terms:
                factor = call.args[1]
                if isinstance(factor, relax.Var) and factor in func.params:
                    found[factor] = _STEPS * scales[0] / (_MEAN_PRODUCT * terms[call.args[0]])
    return found


def _most_in_a_row(func: relax.Function) -> int:
    """The most products and convolutions on a path through ``func``."""
    depths: dict[relax.Var, int] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            name = op_name(binding.value)
            before = max((depths.get(var, 0) for var in used_vars(binding.value)), default=0)
            depths[binding.var] = before + (name == "relax.matmul" or ".conv" in name)
    return max(depths.values(), default=0)


def _large(names: frozenset[str]) -> float:
    sums = any(name in _LINEAR_OPS or ".conv" in name or "norm" in name for name in names)
    if "relax.nn.attention" in names or (sums and names & _CUTTING_OPS):
        return _LARGE_SUM
    return _LARGE_EXPONENT if names & _EXPONENTIAL_OPS else _LARGE
