"""The numpy reference of each Relax operator.

Constants are folded with it, and the results of every candidate kernel are compared with it. float16, bfloat16 and
float8 are computed in float32 and rounded once, at the end. Reductions, statistics and exponential sums are computed
in double precision. Convolutions and products, by BLAS, and element-wise operators have the precision of their
operands.
"""

from unity_collage.reference.evaluate import evaluate, why_not
from unity_collage.reference.interpret import run
from unity_collage.reference.values import Unsupported

__all__ = ["Unsupported", "evaluate", "run", "why_not"]
