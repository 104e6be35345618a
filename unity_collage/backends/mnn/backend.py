"""MNN as a backend of whole models.

Takes     whole models that its converter takes, in float32. Sizes are fixed, and inputs and results are float32 or
          int32. It has Winograd's algorithm for convolutions on x86 too.
Declines  regions: its rule proposes nothing.
Needs     ``MNN``, and Python where the program runs.
"""

from __future__ import annotations

from tvm.target import Target

from ...rules import Rule, Union
from ...sessions import RUNTIMES
from ..base import Backend
from ..runtimes.lowering import region_codegen

_RUNTIME = RUNTIMES["mnn"]


def _rule(_target: Target) -> Rule:
    return Union(())


MNN = Backend(
    name="mnn",
    rule=_rule,
    why_unavailable=lambda: _RUNTIME.why_unavailable(),
    fingerprint=lambda: _RUNTIME.version(),
    codegen=region_codegen(_RUNTIME),
    by_default=False,
    has_own_threads=True,
    takes_options=True,
    version=1,
)
