"""cuBLASLt as a backend.

Takes     matrix products of float32, float16 and bfloat16, also batched ones and those with vectors, and 1x1
          convolutions with channels innermost. A scalar factor, a bias of the columns, an added matrix, and ReLU or
          GELU may follow in the same call. The library ranks its algorithms for a product: the first three are
          candidates.
Declines  other dtypes, dynamic shapes, a result of another dtype than the operands, operators after an activation.
Needs     a CUDA device and ``libcublasLt.so.13``.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.target import Target

from ... import runtime
from ...rules import Composite, PrimitiveChain, Rule, Union
from ..base import Backend
from ..native.codegen import native_codegen
from ..native.program import NativeStep
from .lowering import ALGORITHMS, ANCHORS, absorbed_input, absorbed_output, fused, lower


def _rule(_target: Target) -> Rule:
    return Union(tuple(Composite(label, _chain(label, step)) for label, step in ALGORITHMS.items()))


def _chain(label: str, step: Callable[[relax.Call], NativeStep | str]) -> Rule:
    return PrimitiveChain(
        label.removeprefix("cublas."),
        anchors=ANCHORS,
        step=step,
        fused=fused,
        absorbed_input=absorbed_input,
        absorbed_output=absorbed_output,
    )


CUBLAS = Backend(
    name="cublas",
    rule=_rule,
    why_unavailable=lambda: runtime.why_unavailable("cublas"),
    fingerprint=lambda: runtime.describe("cublas"),
    codegen=native_codegen("cublas", lower),
    multiplies_as_written=True,
    kinds=frozenset({"cuda"}),
    version=2,
)
