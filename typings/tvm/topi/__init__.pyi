from typing import Any

from ..ir import Expr
from ..te import Tensor
from . import tag as tag

def take(
    a: Tensor, indices: Tensor | Expr, axis: Any = None, batch_dims: int = 0, mode: str = "fast"
) -> Tensor: ...
def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, mode: str) -> Tensor: ...
