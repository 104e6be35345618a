"""cuDNN: which Relax operators are graphs of its operations, and how they become programs."""

from .lowering import ALGORITHMS, absorbed_input, absorbed_output, fused, lower, step, why_partial

__all__ = ["ALGORITHMS", "absorbed_input", "absorbed_output", "fused", "lower", "step", "why_partial"]
