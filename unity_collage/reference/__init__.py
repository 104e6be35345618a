"""What each Relax operator computes, in numpy.

Constants are folded with it, and every candidate kernel's numbers are compared
with it. float16, bfloat16 and float8 are computed in float32 and rounded once, at
the end. Reductions, statistics and exponential sums run in double precision;
convolutions and products in the precision of their operands, by BLAS; element-wise
operators in the precision of their operands.
"""

from unity_collage.reference.evaluate import evaluate, why_not
from unity_collage.reference.interpret import run
from unity_collage.reference.values import Unsupported

__all__ = ["Unsupported", "evaluate", "run", "why_not"]
