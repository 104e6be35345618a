"""oneDNN: which of its primitives computes which Relax operators, and how they become programs."""

from .lowering import ANCHORS, absorbed_input, absorbed_output, fused, lower, step, why_partial
from .lrn import lrn, lrn_pattern, why_not_lrn

__all__ = [
    "ANCHORS",
    "absorbed_input",
    "absorbed_output",
    "fused",
    "lower",
    "lrn",
    "lrn_pattern",
    "step",
    "why_not_lrn",
    "why_partial",
]
