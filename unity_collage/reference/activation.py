"""Activation functions, softmax, and dropout in inference.

Softmax computes exponentials and their sums in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from unity_collage.reference.special import erf
from unity_collage.reference.values import Call, Operator, plain

_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


def gelu(x: np.ndarray) -> np.ndarray:
    """``x`` times the normal distribution function of ``x``."""
    return x * (0.5 + 0.5 * erf(x * math.sqrt(0.5)))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """GELU with the distribution function approximated by tanh (Hendrycks and Gimpel, 2016)."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def silu(x: np.ndarray) -> np.ndarray:
    """``x`` times the logistic function of ``x``."""
    return x / (1 + np.exp(-x))


def selu(x: np.ndarray) -> np.ndarray:
    """A scaled exponential unit, with the constants of Klambauer et al., 2017."""
    return _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(np.minimum(x, 0)))


def leaky_relu(call: Call, x: np.ndarray) -> np.ndarray:
    """``x`` where it is positive, ``alpha * x`` elsewhere."""
    return np.where(x > 0, x, x * call.attrs.alpha)


def prelu(call: Call, x: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """A leaky ReLU with a slope for each index of an axis."""
    along = [1] * x.ndim
    along[call.attrs.axis] = alpha.size
    return np.where(x > 0, x, x * alpha.reshape(along))


def softplus(call: Call, x: np.ndarray) -> np.ndarray:
    """``log(1 + exp(beta * x)) / beta``, and ``x`` itself above the threshold."""
    beta = call.attrs.beta
    return np.where(x * beta > call.attrs.threshold, x, np.logaddexp(0, x * beta) / beta)


def softmax_along(x: np.ndarray, axis: int) -> np.ndarray:
    """Exponentials divided by their sum, in double precision."""
    powers = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _softmax(call: Call, x: np.ndarray) -> np.ndarray:
    return softmax_along(x, call.attrs.axis)


def _log_softmax(call: Call, x: np.ndarray) -> np.ndarray:
    axis = call.attrs.axis
    shifted = x.astype(np.float64) - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def _dropout(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x, np.ones_like(x)


_PLAIN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relax.nn.relu": lambda x: np.maximum(x, 0),
    "relax.nn.gelu": gelu,
    "relax.nn.gelu_tanh": gelu_tanh,
    "relax.nn.selu": selu,
    "relax.nn.silu": silu,
}

OPERATORS: dict[str, Operator] = {
    **{name: plain(function) for name, function in _PLAIN.items()},
    "relax.nn.leakyrelu": Operator(leaky_relu),
    "relax.nn.prelu": Operator(prelu),
    "relax.nn.softplus": Operator(softplus),
    "relax.nn.softmax": Operator(_softmax),
    "relax.nn.log_softmax": Operator(_log_softmax),
    "relax.nn.dropout": plain(_dropout),
}
