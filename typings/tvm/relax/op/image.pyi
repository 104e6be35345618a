from collections.abc import Sequence
from typing import Any

from tvm.ir import Call, Expr
from tvm.ir.expr import PrimLike

def resize2d(
    data: Expr,
    size: PrimLike | Sequence[PrimLike],
    roi: float | Sequence[float] | None = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> Call: ...
def __getattr__(name: str) -> Any: ...  # the other operators
