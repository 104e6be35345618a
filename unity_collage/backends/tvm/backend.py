"""TVM as a backend: the groups that FuseOps could make one kernel of, with our CPU schedules or DLight's for GPUs.

Takes     every operator that has a legalization, and every PrimFunc (``call_tir``), fused by kind
          (FusionCone).
Declines  shapes that are not known, and opaque operators. TVM compiles these too, but they have no cost.
Needs     nothing but TVM.
"""

from __future__ import annotations

import tvm
from tvm.target import Target

from ...graph import Limits
from ...rules import FusionCone, OnlyValid, Union, WholeCones
from ..base import Backend


def _rule(_target: Target) -> Union:
    """All cones, and for each exit the two smallest cones that recompute a producer with other readers.

    There are only two because each such candidate is one more kernel to measure. A chain that exceeds the limits of a
    cone is one more candidate as a whole.
    """
    again = FusionCone(recompute=True, max_recomputed=1, max_regions=2)
    cones = OnlyValid(Union((FusionCone(), again)), Limits(max_depth=FusionCone().max_depth))
    return Union((cones, OnlyValid(WholeCones(), Limits())))


TVM = Backend(
    name="tvm",
    rule=_rule,
    why_unavailable=lambda: None,
    fingerprint=lambda: f"tvm {tvm.__version__}",
    takes_free_sizes=True,
    limits_threads=True,
    multiplies_as_written=True,
    widens_bytes=True,
    kinds=frozenset({"llvm", "cuda"}),
    version=1,
)
