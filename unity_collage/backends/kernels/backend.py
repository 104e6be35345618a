"""Our own kernels as a backend.

Takes     convolutions with constant weights, followed by bias, residual and activation. Filters of 3x3 with a stride of
          1 or 2, and of 2x2 with a stride of 1, use Winograd's algorithm: one candidate with tiles of 2x2 and one with
          tiles of 4x4. Filters of 3x3 with groups of few channels are vectorised over the groups. Attention: two
          products and the softmax between them, with a factor and a mask. Recurrent layers. bfloat16 and float32:
          bfloat16 is widened while it is read, and rounded while it is stored.
Declines  other dtypes, dilation, channels that are not innermost.
Needs     nothing.
"""

from __future__ import annotations

from tvm.target import Target

from ... import runtime
from ...rules import Composite, PrimitiveChain, Rule, Union
from ..base import Backend
from ..native.codegen import native_codegen
from .functions import why_inexact
from .lowering import (
    ALGORITHMS,
    KernelAlgorithm,
    absorbed_input,
    absorbed_output,
    grown,
    join,
    lower,
    why_partial,
)


def _rule(_target: Target) -> Rule:
    return Union(tuple(Composite(label, _chain(label, entry)) for label, entry in ALGORITHMS.items()))


def _chain(label: str, algorithm: KernelAlgorithm) -> Rule:
    return PrimitiveChain(
        label.removeprefix("kernels."),
        anchors=algorithm.anchors,
        step=algorithm.step,
        fused=grown,
        absorbed_input=absorbed_input,
        absorbed_output=absorbed_output,
        joined=join,
        why_partial=why_partial,
        always_absorbed=algorithm.always_absorbed,
    )


KERNELS = Backend(
    name="kernels",
    rule=_rule,
    why_unavailable=lambda: runtime.why_unavailable("kernels"),
    fingerprint=lambda: runtime.describe("kernels"),
    codegen=native_codegen("kernels", lower),
    takes_free_sizes=True,
    limits_threads=True,
    merges=True,
    multiplies_as_written=True,
    why_inexact=why_inexact,
    version=2,
)
