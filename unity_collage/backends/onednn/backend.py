"""oneDNN as a backend.

Takes     the operators of its primitives: convolutions, products, pooling, norms, softmax, element-wise and binary
          operators, concatenation, reductions, resampling, layout changes, LRN. Most can have a bias and
          post-operations in the same kernel, and read and write layout changes of operands and results through strides.
          float32; bfloat16 where ``limits`` and ``narrow`` allow it. bfloat16 is widened while it is read, and results
          are rounded while they are stored. Products and convolutions of bytes with sums of 32 bits
          (``whole_numbers``), which may be quantised while they are stored (``quantising``).
Declines  other dtypes, free sizes except in ``limits.FREE_SIZES``, primitives that lose NaN (``nan``), and what oneDNN
          computes only with a slow reference kernel (``limits``).
Needs     ``onednn-cpu-gomp``: the build for GNU OpenMP, whose parallel regions run on our pool. It is for x86-64 only.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tvm.target import Target

from ... import runtime
from ...rules import DFPattern, PrimitiveChain, Rule, Union
from ..base import Backend
from ..native.absorb import CAST
from ..native.codegen import native_codegen
from .exactness import why_inexact
from .lowering import ANCHORS, absorbed_input, absorbed_output, fused, lower, step, why_partial
from .lrn import lrn_pattern, why_not_lrn
from .nan import keeping_nan
from .narrow import has_narrow, only_wide
from .quantising import DEQUANTIZE
from .whole_numbers import has_products_of_bytes, without_bytes

_CHAINS = PrimitiveChain(
    "primitive",
    anchors=frozenset(ANCHORS),
    step=keeping_nan(step),
    fused=keeping_nan(fused),
    absorbed_input=absorbed_input,
    absorbed_output=absorbed_output,
    why_partial=why_partial,
    always_absorbed=frozenset({CAST, DEQUANTIZE}),
)


@cache  # so that the rules of two calls are equal
def _chains(has_bfloat16: bool, has_bytes: bool) -> PrimitiveChain:
    made = _CHAINS
    for declining in (() if has_bfloat16 else (only_wide,)) + (() if has_bytes else (without_bytes,)):
        made = replace(
            made,
            step=declining(made.step),
            fused=declining(made.fused),
            absorbed_input=declining(made.absorbed_input),
        )
    return made


def _rule(target: Target) -> Rule:
    chains = _chains(has_narrow(target), has_products_of_bytes(target))
    return Union((chains, DFPattern("lrn", lrn_pattern, why_not_lrn, root="relax.divide")))


ONEDNN = Backend(
    name="onednn",
    rule=_rule,
    why_unavailable=lambda: runtime.why_unavailable("onednn"),
    fingerprint=lambda: runtime.describe("onednn"),
    codegen=native_codegen("onednn", lower),
    takes_free_sizes=True,
    limits_threads=True,
    merges=True,
    multiplies_as_written=True,
    multiplies_bytes=has_products_of_bytes,
    why_inexact=why_inexact,
    processors=frozenset({"x86_64"}),
    version=6,
)
