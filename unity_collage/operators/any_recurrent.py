"""``relax.collage.recurrent``: a recurrent layer with every option of ONNX, of any number of steps and sequences.

:mod:`.recurrent` has the layers that most models have, which libraries take; this operator is for all others. Its
equations and the order of its gates are those of ONNX, too. TVM's kernel is in :mod:`.any_recurrent_tir`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax
from tvm.relax import script as relax_script
from tvm.script.parser import relax as relax_parser

from ..tvm_private import register_operator
from .any_recurrent_tir import kernel
from .recurrent import CELLS
from .recurrent_tir import tensor_type

NAME = "relax.collage.recurrent"
OPERANDS = ("inputs", "weights", "state", "memory", "bias", "peepholes", "lengths")

DEFAULTS: Mapping[str, tuple[float, float]] = {
    "Affine": (1.0, 0.0),
    "Elu": (1.0, 0.0),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01, 0.0),
    "Relu": (0.0, 0.0),
    "ScaledTanh": (1.0, 1.0),
    "Sigmoid": (0.0, 0.0),
    "Softplus": (0.0, 0.0),
    "Softsign": (0.0, 0.0),
    "Tanh": (0.0, 0.0),
    "ThresholdedRelu": (1.0, 0.0),
}
"""Activations that the gates may have, by their ONNX names, with the default alpha and beta."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a layer."""

    cell: str
    """``lstm``, ``gru`` or ``rnn``."""
    activations: Sequence[str]
    alphas: Sequence[float]
    betas: Sequence[float]
    reverse: bool = False
    resets_first: bool = True
    """For a GRU: whether the state is reset before its product with the weights."""
    coupled: bool = False
    """For an LSTM: whether the forget gate is 1 less the input gate."""
    clip: float = 0.0
    """The largest magnitude of the arguments of the gates' activations; 0 for no limit."""
    has_peepholes: bool = False
    has_lengths: bool = False


def recurrent(operands: Mapping[str, relax.Expr], options: Options) -> relax.Call:
    """The layer of ``operands``, one for each of ``OPERANDS``.

    ``inputs`` is (steps, batch, gates * hidden): the inputs times their weights, with the biases. ``weights`` is
    (hidden, gates * hidden), ``state`` and ``memory`` (batch, hidden). ``bias`` (hidden,) is what a GRU adds to the
    product of the state. ``peepholes`` (3 hidden,) are for the gates i, o and f. ``lengths`` (batch,) is int32.
    Operands that the layer does not have are of these shapes, too, and are not read.

    The result is a tuple: the states (steps, batch, hidden), each at the index of its input, 0 behind the end of a
    sequence; and the last state and the last memory of each sequence, (batch, hidden).
    """
    attrs: dict[str, Any] = {name: getattr(options, name) for name in Options.__slots__}  # type: ignore[attr-defined]
    attrs |= {"activations": list(options.activations)}
    attrs |= {name: [float(x) for x in attrs[name]] for name in ("alphas", "betas")}
    unknown = sorted(set(options.activations) - set(DEFAULTS))
    if unknown or len(options.activations) != len(CELLS[options.cell].activations):
        raise ValueError(f"the activations {', '.join(options.activations)} are not those of {options.cell}")
    return _call(*(operands[name] for name in OPERANDS), **attrs)


def _call(*operands: relax.Expr, **attrs: Any) -> relax.Call:
    """The function that TVMScript calls when it parses ``R.collage.recurrent(...)``."""
    return relax.Call(ir.Op.get(NAME), list(operands), ir.DictAttrs(attrs))


def _type(call: relax.Call, _builder: Any) -> relax.TupleType:
    inputs = tensor_type(call.args[0])
    steps, batch, _ = inputs.shape.values  # type: ignore[union-attr]
    hidden = tensor_type(call.args[1]).shape.values[0]  # type: ignore[union-attr]
    last = relax.TensorType((batch, hidden), inputs.dtype)
    return relax.TupleType([relax.TensorType((steps, batch, hidden), inputs.dtype), last, last])


def _legalized(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    made = builder.add_func(kernel(call), "recurrent")
    assert isinstance(call.ty, relax.TupleType)
    return relax.call_tir(made, list(call.args), out_ty=list(call.ty.fields))


def register() -> None:
    """Register the operator with Relax and TVMScript, after :mod:`.recurrent`; a second call does nothing."""
    if NAME in ir.Op.list_op_names():
        return
    register_operator(NAME, f"a recurrent layer with every option of ONNX: {', '.join(OPERANDS)}")
    ir.register_op_attr(NAME, "FInferType", _type)
    ir.register_op_attr(NAME, "FLegalize", _legalized)
    ir.register_op_attr(NAME, "FPurity", True)
    for script in (relax_script, relax_parser):
        script.collage.recurrent = _call
