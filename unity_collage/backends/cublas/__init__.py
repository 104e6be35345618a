"""cuBLASLt: which Relax operators are matrix products to it, and how they become programs."""

from .lowering import ALGORITHMS, ANCHORS, absorbed_input, absorbed_output, fused, lower, step

__all__ = ["ALGORITHMS", "ANCHORS", "absorbed_input", "absorbed_output", "fused", "lower", "step"]
