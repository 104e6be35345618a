"""How operators become TVM's kernels where TVM's own legalization is wrong or fails.

These are negative indexes, NaN and infinity, norms over all axes, and integers divided by zero. Others are numbers in
``where`` and ``full``, booleans, sums in float16, quantising, and casts.

``legalize_ops`` is TVM's pass ``LegalizeOps`` with these, and ``legalize_sorts`` is that for sorts and scans on CPUs,
which TVM legalizes in another pass. Nothing is registered: other users of TVM in the process keep TVM's own.
"""

from __future__ import annotations

import tvm
from tvm import ir, relax

from . import (
    booleans,
    casts,
    division,
    extrema,
    half,
    hyperbolic,
    indexing,
    norms,
    numbers,
    places,
    quantization,
    scatters,
)
from .sorting import SORTS

LEGALIZATIONS = {
    **indexing.LEGALIZATIONS,
    **scatters.LEGALIZATIONS,
    **extrema.LEGALIZATIONS,
    **places.LEGALIZATIONS,
    **norms.LEGALIZATIONS,
    **numbers.LEGALIZATIONS,
    **division.LEGALIZATIONS,
    **booleans.LEGALIZATIONS,
    **half.LEGALIZATIONS,
    **hyperbolic.LEGALIZATIONS,
    **quantization.LEGALIZATIONS,
    **casts.LEGALIZATIONS,
}
"""Operator -> function of a block builder and a call, as ``LegalizeOps`` takes them."""


def legalize_ops() -> tvm.transform.Pass:
    """The pass that turns each operator into a call of a PrimFunc, where there is a legalization for it."""
    return relax.transform.LegalizeOps(LEGALIZATIONS)


def legalize_sorts() -> tvm.transform.Pass:
    """The pass that turns all sorts into sorts of int32 or int64, which TVM's kernels for CPUs do right.

    Scans in float16 become scans in float32.
    """
    ours = {**SORTS, **half.SCANS}
    others = [name for name in ir.Op.list_op_names() if name not in ours]
    return relax.transform.LegalizeOps(ours, skip_ops=others)


__all__ = ["LEGALIZATIONS", "legalize_ops", "legalize_sorts"]
