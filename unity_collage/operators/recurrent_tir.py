"""TVM's kernel of a recurrent operator: a loop over the steps, on one thread.

It runs where no library takes the operator. The product of a step adds up rows of the weights, each times one element
of the state, because LLVM vectorises that order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, tirx
from tvm.script import tirx as T

OPAQUE = 8
"""Its ``OpPatternKind``: nothing fuses with a loop over steps."""

_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "Relu": lambda x: tirx.max(x, tirx.const(0, x.ty.dtype)),
    "Sigmoid": tirx.sigmoid,
    "Softsign": lambda x: x / (tirx.const(1, x.ty.dtype) + tirx.abs(x)),
    "Tanh": tirx.tanh,
}


def kernel(cell: str, call: relax.Call) -> tirx.PrimFunc:
    """The PrimFunc of a call of ``cell``; its parameters are the operands and the result."""
    make = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}[cell]
    made = make(call, *(_FUNCTIONS[str(name)] for name in attrs_of(call)["activations"]))
    return made.with_attrs({"op_pattern": OPAQUE, "tirx.is_scheduled": True, "tirx.noalias": True})


def attrs_of(call: relax.Call) -> Any:
    """The attributes of an operator, by name."""
    return call.attrs


def _sizes(call: relax.Call) -> tuple[Any, Any, int, int, str]:
    """Steps, batch, hidden units, width of the inputs, and the element type; sizes that are symbolic are variables of
    the kernel."""
    steps, batch, width = (size_of_kernel(call.args[0], axis) for axis in range(3))
    return steps, batch, size_of_kernel(call.args[1], 0), width, str(tensor_type(call.args[0]).dtype)


def size_of_kernel(expr: relax.Expr, axis: int) -> Any:
    """An extent of a tensor as a number, or as a new variable of a kernel: of inputs (steps, batch, ...)."""
    shape = tensor_type(expr).shape
    assert isinstance(shape, relax.ShapeExpr)
    size = shape.values[axis]
    return int(size.value) if isinstance(size, tirx.IntImm) else tirx.Var(("steps", "batch")[axis], "int64")


def tensor_type(expr: relax.Expr) -> relax.TensorType:
    """The type of an expression that is known to be a tensor."""
    assert isinstance(expr.ty, relax.TensorType)
    return expr.ty


def _order(call: relax.Call, steps: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Functions from an iteration of the loop to its row, and to the row of the iteration before it."""
    if attrs_of(call)["reverse"]:
        return lambda turn: steps - 1 - turn, lambda turn: steps - turn
    return lambda turn: turn, lambda turn: turn - 1


def _lstm(call: relax.Call, f: Any, g: Any, h: Any) -> tirx.PrimFunc:
    steps, batch, hidden, width, dtype = _sizes(call)
    row, before = _order(call, steps)
    keeps_memory = bool(attrs_of(call)["keeps_memory"])

    @T.prim_func(private=True)
    def lstm(
        inputs: T.Buffer((steps, batch, width), dtype),  # pyright: ignore
        weights: T.Buffer((hidden, width), dtype),  # pyright: ignore
        state: T.Buffer((batch, hidden), dtype),  # pyright: ignore
        memory: T.Buffer((batch, hidden), dtype),  # pyright: ignore
        result: T.Buffer((steps + keeps_memory, batch, hidden), dtype),  # pyright: ignore
    ):
        gates = T.alloc_buffer((width,), dtype)
        kept = T.alloc_buffer((batch, hidden), dtype)
        for n, j in T.grid(batch, hidden):
            kept[n, j] = memory[n, j]
        for turn, n in T.grid(steps, batch):
            for i in range(width):
                gates[i] = inputs[row(turn), n, i]
            for k, i in T.grid(hidden, width):
                gates[i] += weights[k, i] * T.if_then_else(turn == 0, state[n, k], result[before(turn), n, k])
            for j in range(hidden):
                kept[n, j] = f(gates[2 * hidden + j]) * kept[n, j] + f(gates[j]) * g(gates[3 * hidden + j])
                result[row(turn), n, j] = f(gates[hidden + j]) * h(kept[n, j])
        if keeps_memory:
            for n, j in T.grid(batch, hidden):
                result[steps, n, j] = kept[n, j]

    return lstm


def _gru(call: relax.Call, f: Any, g: Any) -> tirx.PrimFunc:
    steps, batch, hidden, width, dtype = _sizes(call)
    row, before = _order(call, steps)
    resets_first = bool(attrs_of(call)["resets_first"])
    at_once = 2 * hidden if resets_first else width

    @T.prim_func(private=True)
    def gru(
        inputs: T.Buffer((steps, batch, width), dtype),  # pyright: ignore
        weights: T.Buffer((hidden, width), dtype),  # pyright: ignore
        state: T.Buffer((batch, hidden), dtype),  # pyright: ignore
        bias: T.Buffer((hidden,), dtype),  # pyright: ignore
        result: T.Buffer((steps, batch, hidden), dtype),  # pyright: ignore
    ):
        products = T.alloc_buffer((width,), dtype)
        old = T.alloc_buffer((hidden,), dtype)
        reset = T.alloc_buffer((hidden,), dtype)
        for turn, n in T.grid(steps, batch):
            for i in range(width):
                products[i] = T.cast(0, dtype)
            for k in range(hidden):
                old[k] = T.if_then_else(turn == 0, state[n, k], result[before(turn), n, k])
            for k, i in T.grid(hidden, at_once):
                products[i] += weights[k, i] * old[k]
            for j in range(hidden):
                reset[j] = f(inputs[row(turn), n, hidden + j] + products[hidden + j])
            if resets_first:
                for k, j in T.grid(hidden, hidden):
                    products[2 * hidden + j] += weights[k, 2 * hidden + j] * (reset[k] * old[k])
                for j in range(hidden):
                    reset[j] = T.cast(1, dtype)
            for j in range(hidden):
                products[hidden + j] = g(
                    inputs[row(turn), n, 2 * hidden + j] + reset[j] * (products[2 * hidden + j] + bias[j])
                )
                result[row(turn), n, j] = products[hidden + j] + f(inputs[row(turn), n, j] + products[j]) * (
                    old[j] - products[hidden + j]
                )

    return gru


def _rnn(call: relax.Call, f: Any) -> tirx.PrimFunc:
    steps, batch, hidden, width, dtype = _sizes(call)
    row, before = _order(call, steps)

    @T.prim_func(private=True)
    def rnn(
        inputs: T.Buffer((steps, batch, width), dtype),  # pyright: ignore
        weights: T.Buffer((hidden, width), dtype),  # pyright: ignore
        state: T.Buffer((batch, hidden), dtype),  # pyright: ignore
        result: T.Buffer((steps, batch, hidden), dtype),  # pyright: ignore
    ):
        sums = T.alloc_buffer((width,), dtype)
        for turn, n in T.grid(steps, batch):
            for i in range(width):
                sums[i] = inputs[row(turn), n, i]
            for k, i in T.grid(hidden, width):
                sums[i] += weights[k, i] * T.if_then_else(turn == 0, state[n, k], result[before(turn), n, k])
            for j in range(hidden):
                result[row(turn), n, j] = f(sums[j])

    return rnn
