"""OpenBLAS as a backend.

Takes     matrix products and matrix-vector products, also batched ones, with a scalar factor and an added
          bias or matrix. Sizes may be known only when the program runs.
Declines  other dtypes than float32, all operators that are not a product.
Needs     ``scipy-openblas32``.
"""

from __future__ import annotations

from tvm.target import Target

from ... import runtime
from ...rules import PrimitiveChain, Rule
from ..base import Backend
from ..native.codegen import native_codegen
from .lowering import ANCHORS, absorbed_input, absorbed_output, fused, lower, step


def _rule(_target: Target) -> Rule:
    return PrimitiveChain(
        "product",
        anchors=frozenset(ANCHORS),
        step=step,
        fused=fused,
        absorbed_input=absorbed_input,
        absorbed_output=absorbed_output,
    )


OPENBLAS = Backend(
    name="openblas",
    rule=_rule,
    why_unavailable=lambda: runtime.why_unavailable("openblas"),
    fingerprint=lambda: runtime.describe("openblas"),
    codegen=native_codegen("openblas", lower),
    takes_free_sizes=True,
    limits_threads=True,
    merges=True,
    multiplies_as_written=True,
    version=2,
)
