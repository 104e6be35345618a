"""Random chains of operators, compiled, are what numpy makes of them step by step, for NaN, infinity and rounding."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from unity_collage.compiler import compile_with
from unity_collage.pipeline import collage
from unity_collage.testing.fixed_cost import FixedCost

VALUES = [np.nan, np.inf, -np.inf, 0, -0.0, 1, -1, 2.5, -2.5, 0.5, 3e38, -3e38, 1e-9, 1e9, -7.3, 88]
CONSTANTS = [1e9, 3.0, -3.0, 0.5, 1e-9, 12582912.0, 1e30, 1e-30, 1.0, 0.0, -1.0, 7.0]
BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (op.add, np.add),
    "subtract": (op.subtract, np.subtract),
    "multiply": (op.multiply, np.multiply),
    "divide": (op.divide, np.divide),
    "maximum": (op.maximum, np.maximum),
    "minimum": (op.minimum, np.minimum),
}
UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "negative": (op.negative, np.negative),
    "abs": (op.abs, np.abs),
    "square": (op.square, np.square),
    "sqrt": (op.sqrt, np.sqrt),
    "relu": (op.nn.relu, lambda x: np.maximum(x, np.float32(0))),
    "floor": (op.floor, np.floor),
    "round": (op.round, np.round),
    "narrow": (
        lambda x: op.astype(op.astype(x, "float16"), "float32"),
        lambda x: x.astype("float16").astype("float32"),
    ),
    "clip": (lambda x: op.clip(x, -2.0, 3.0), lambda x: np.clip(x, np.float32(-2), np.float32(3))),
    "itself": (lambda x: op.divide(x, x), lambda x: x / x),
    "twice": (lambda x: op.add(x, x), lambda x: x + x),
    "difference": (lambda x: op.subtract(x, x), lambda x: x - x),
}

Step = tuple[str, float | None, bool]
"""An operator, its constant, and whether that is the left operand."""


def chain(seed: int, steps: int) -> list[Step]:
    rng = random.Random(seed)
    found: list[Step] = []
    for _ in range(steps):
        name = rng.choice([*BINARY, *BINARY, *UNARY])
        found.append((name, rng.choice(CONSTANTS) if name in BINARY else None, rng.random() < 0.2))
    return found


def by_relax(x: relax.Expr, steps: list[Step]) -> relax.Expr:
    for name, value, left in steps:
        if value is None:
            x = UNARY[name][0](x)
        else:
            operands = (x, relax.const(value, "float32"))
            x = BINARY[name][0](*(operands[::-1] if left else operands))
    return x


def by_numpy(x: np.ndarray, steps: list[Step]) -> np.ndarray:
    for name, value, left in steps:
        operands = (x,) if value is None else (x, np.float32(value))
        x = (UNARY if value is None else BINARY)[name][1](*(operands[::-1] if left else operands))
    return x


def results(chains: list[list[Step]], x: np.ndarray) -> list[np.ndarray]:
    """The result of each chain, as functions of one program."""
    builder = relax.BlockBuilder()
    param = relax.Var("x", relax.TensorType(x.shape, "float32"))
    with builder.function("main", [param]):
        with builder.dataflow():
            made = [builder.emit_output(builder.normalize(by_relax(param, steps))) for steps in chains]
        builder.emit_func_output(relax.Tuple(made))
    program = compile_with(collage(["tvm"], FixedCost({})), builder.finalize())
    found = program(x)
    return [each.numpy() for each in found if isinstance(each, tvm.runtime.Tensor)]


@pytest.mark.parametrize("seed", [1, 2])
def test_each_step_is_rounded_as_numpy_rounds_it(seed: int) -> None:
    x = np.array(VALUES, "float32")
    chains = [chain(100 * seed + number, 4) for number in range(8)]
    for steps, got in zip(chains, results(chains, x), strict=True):
        with np.errstate(all="ignore"):
            expected = by_numpy(x, steps)
        np.testing.assert_allclose(got, expected, rtol=5e-7, atol=1e-37, err_msg=str(steps))
