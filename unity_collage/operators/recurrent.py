"""``relax.collage.lstm``, ``.gru`` and ``.rnn``: one layer in one direction over a whole sequence.

The inputs of all steps are multiplied by their weights before, in one product (``X W^T`` and the biases). So the
operator computes only what depends on the step before. Its equations and the order of its gates are those of ONNX.
TVMScript prints it as ``R.collage.lstm(...)``, and reads that once :mod:`unity_collage.operators` is imported. TVM's
kernel is in :mod:`.recurrent_tir`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tvm import ir, relax, sym, tirx
from tvm.relax import script as relax_script
from tvm.script.parser import relax as relax_parser

from ..tvm_private import register_operator
from .recurrent_tir import attrs_of, kernel, tensor_type

ACTIVATIONS = ("Relu", "Sigmoid", "Softsign", "Tanh")
"""Activations that the gates may have, by their ONNX names."""


@dataclass(frozen=True, slots=True)
class Cell:
    """How one of the operators differs from the others."""

    gates: int
    """Products for each hidden unit; the widths of ``inputs`` and ``weights`` are this number of hidden units."""
    operands: tuple[str, ...]
    activations: tuple[str, ...]
    """The default activations."""


CELLS: Mapping[str, Cell] = {
    "lstm": Cell(4, ("inputs", "weights", "state", "memory"), ("Sigmoid", "Tanh", "Tanh")),
    "gru": Cell(3, ("inputs", "weights", "state", "bias"), ("Sigmoid", "Tanh")),
    "rnn": Cell(1, ("inputs", "weights", "state"), ("Tanh",)),
}
"""The cells, by the last part of the operator's name."""


def lstm(
    inputs: relax.Expr,
    weights: relax.Expr,
    state: relax.Expr,
    memory: relax.Expr,
    *,
    activations: Sequence[str] = (),
    reverse: bool = False,
    keeps_memory: bool = False,
) -> relax.Call:
    """Ct = f(ft) Ct-1 + f(it) g(ct); Ht = f(ot) h(Ct), where i, o, f, c = inputs[t] + Ht-1 weights.

    ``inputs`` is (steps, batch, 4 hidden), ``weights`` (hidden, 4 hidden), ``state`` and ``memory`` (batch, hidden).
    The result is (steps, batch, hidden): the state of each step at the index of its input. With ``keeps_memory`` it has
    one more row, the memory after the last step. ``reverse`` goes from the last step to the first. ``activations`` are
    f, g and h. Steps and batch may be symbolic, here and of the other operators; hidden is a number.
    """
    options = _options("lstm", activations, reverse) | {"keeps_memory": bool(keeps_memory)}
    return _call("lstm", (inputs, weights, state, memory), options)


def gru(
    inputs: relax.Expr,
    weights: relax.Expr,
    state: relax.Expr,
    bias: relax.Expr,
    *,
    activations: Sequence[str] = (),
    reverse: bool = False,
    resets_first: bool = True,
) -> relax.Call:
    """Ht = (1 - zt) ht + zt Ht-1 with zt, rt = f(inputs[t] + Ht-1 weights) and ht = g(inputs[t] + st).

    st is rt (Ht-1 weights + bias), or with ``resets_first`` (rt Ht-1) weights + bias. ``inputs`` is (steps, batch,
    3 hidden) and ``weights`` (hidden, 3 hidden), both in the order z, r, h. ``state`` is (batch, hidden), ``bias``
    (hidden,), and the result (steps, batch, hidden).
    """
    options = _options("gru", activations, reverse) | {"resets_first": bool(resets_first)}
    return _call("gru", (inputs, weights, state, bias), options)


def rnn(
    inputs: relax.Expr,
    weights: relax.Expr,
    state: relax.Expr,
    *,
    activations: Sequence[str] = (),
    reverse: bool = False,
) -> relax.Call:
    """Ht = f(inputs[t] + Ht-1 weights); ``inputs`` is (steps, batch, hidden), ``weights`` is (hidden, hidden)."""
    return _call("rnn", (inputs, weights, state), _options("rnn", activations, reverse))


def cell_of(call: relax.Call) -> str:
    """The cell of a call: ``lstm``, ``gru`` or ``rnn``."""
    assert isinstance(call.op, ir.Op)
    return call.op.name.removeprefix(_PREFIX)


def steps_of(call: relax.Call) -> int:
    """How many steps a recurrent layer has, one after the other, 1 where it is symbolic; 0 for other operators."""
    if not isinstance(call.op, ir.Op) or cell_of(call) not in CELLS:
        return 0
    steps = _shape(cell_of(call), "inputs", call.args[0])[0]
    return steps if isinstance(steps, int) else 1


def has_result_without_steps(call: relax.Call) -> bool:
    """Whether a call is a layer with a row in its result even if its inputs have none: the row of the memory."""
    return isinstance(call.op, ir.Op) and cell_of(call) == "lstm" and bool(attrs_of(call)["keeps_memory"])


_DIALECT = "collage"
_PREFIX = f"relax.{_DIALECT}."


def _options(cell: str, activations: Sequence[str], reverse: bool) -> dict[str, Any]:
    names = [str(name) for name in activations] or list(CELLS[cell].activations)
    if len(names) != len(CELLS[cell].activations) or not set(names) <= set(ACTIVATIONS):
        wanted = f"{len(CELLS[cell].activations)} of {', '.join(ACTIVATIONS)}"
        raise ValueError(f"the activations of {cell} are {wanted}, not {', '.join(names)}")
    return {"activations": names, "reverse": bool(reverse)}


def _call(cell: str, operands: Sequence[relax.Expr], options: Mapping[str, Any]) -> relax.Call:
    return relax.Call(ir.Op.get(_PREFIX + cell), list(operands), ir.DictAttrs(dict(options)))


def _type(call: relax.Call, _builder: Any) -> relax.TensorType:
    """The type of the result; raises ValueError with one line if the operands do not fit together."""
    cell = cell_of(call)
    kind = CELLS[cell]
    shapes = {name: _shape(cell, name, arg) for name, arg in zip(kind.operands, call.args, strict=True)}
    steps, batch, _ = shapes["inputs"]
    hidden = shapes["weights"][0]
    fitting = {
        "inputs": (steps, batch, kind.gates * hidden),
        "weights": (hidden, kind.gates * hidden),
        "state": (batch, hidden),
        "memory": (batch, hidden),
        "bias": (hidden,),
    }
    for name, shape in shapes.items():
        if any(map(_differ, shape, fitting[name])):
            raise ValueError(f"{name} of {cell} is {shape}, with {steps} steps it should be {fitting[name]}")
    rows = steps + int(attrs_of(call)["keeps_memory"]) if cell == "lstm" else steps
    return relax.TensorType((rows, batch, hidden), tensor_type(call.args[0]).dtype)


_RANKS = {"inputs": 3, "weights": 2, "state": 2, "memory": 2, "bias": 1}
_FREE = {"inputs": 2, "state": 1, "memory": 1}
"""How many axes of an operand, from the first on, may have a symbolic extent."""


def _shape(cell: str, name: str, value: relax.Expr) -> tuple[Any, ...]:
    shape = value.ty.shape if isinstance(value.ty, relax.TensorType) else None
    values = list(shape.values) if isinstance(shape, relax.ShapeExpr) else []
    extents = tuple(extent.value if isinstance(extent, tirx.IntImm) else extent for extent in values)
    if len(values) != _RANKS[name]:
        raise ValueError(f"{name} of {cell} is not a tensor of {_RANKS[name]} axes with a known shape")
    if any(not isinstance(extent, int) for extent in extents[_FREE.get(name, 0) :]):
        raise ValueError(f"{name} of {cell} is {extents}, but the number of hidden units is static")
    return extents


def _differ(one: Any, other: Any) -> bool:
    """Whether two extents are never the same; those that may be are compared when the program runs."""
    if isinstance(one, int) and isinstance(other, int):
        return one != other
    difference = sym.Analyzer().simplify(one - other)
    return isinstance(difference, tirx.IntImm) and difference.value != 0


def _legalized(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    made = builder.add_func(kernel(cell_of(call), call), cell_of(call))
    return relax.call_tir(made, list(call.args), out_ty=call.ty)


def register() -> None:
    """Register the operators with Relax and TVMScript; a second call does nothing."""
    if _PREFIX + "lstm" in ir.Op.list_op_names():
        return
    for cell, kind in CELLS.items():
        name = _PREFIX + cell
        register_operator(name, f"a whole sequence of {cell} cells: {', '.join(kind.operands)}")
        ir.register_op_attr(name, "FInferType", _type)
        ir.register_op_attr(name, "FLegalize", _legalized)
        ir.register_op_attr(name, "FPurity", True)
    for script in (relax_script, relax_parser):
        setattr(script, _DIALECT, SimpleNamespace(lstm=lstm, gru=gru, rnn=rnn))
