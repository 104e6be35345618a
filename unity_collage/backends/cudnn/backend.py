"""cuDNN as a backend.

Takes     convolutions of one to three spatial dims, followed by bias, residual and activation: one candidate for each
          of the first engines that cuDNN recommends. Attention of 16-bit types as one kernel. Pooling and layer
          normalization. float32, float16 and bfloat16: all compute in float32. Operands of float32 are not rounded,
          unless the precision is ``tf32``.
Declines  other dtypes, dynamic shapes, transposed convolutions. If no engine can run a graph, cuDNN refuses it when the
          kernel is made, and the measurement records the reason.
Needs     ``nvidia-cudnn-cu13``, an NVIDIA GPU.
"""

from __future__ import annotations

from functools import partial

from tvm.target import Target

from ... import runtime
from ...rules import Composite, PrimitiveChain, Rule, Union
from ..base import Backend
from ..native.codegen import native_codegen
from .lowering import ALGORITHMS, absorbed_input, absorbed_output, fused, lower, step, why_partial

_STEPS = {label: partial(step, label) for label in ALGORITHMS}
# Made once, so that the rules of two calls are equal.


def _rule(_target: Target) -> Rule:
    return Union(tuple(Composite(label, _chain(label)) for label in ALGORITHMS))


def _chain(label: str) -> Rule:
    kind = ALGORITHMS[label]
    return PrimitiveChain(
        label.removeprefix("cudnn."),
        anchors=kind.anchors,
        step=_STEPS[label],
        fused=fused,
        absorbed_input=absorbed_input,
        absorbed_output=absorbed_output,
        why_partial=why_partial,
        always_absorbed=kind.always_absorbed,
    )


CUDNN = Backend(
    name="cudnn",
    rule=_rule,
    why_unavailable=lambda: runtime.why_unavailable("cudnn"),
    fingerprint=lambda: runtime.describe("cudnn"),
    codegen=native_codegen("cudnn", lower),
    kinds=frozenset({"cuda"}),
    version=2,
)
