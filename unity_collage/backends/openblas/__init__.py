"""OpenBLAS: which Relax operators are matrix products to it, and how they become programs."""

from .lowering import ANCHORS, absorbed_input, absorbed_output, fused, lower, step

__all__ = ["ANCHORS", "absorbed_input", "absorbed_output", "fused", "lower", "step"]
