from collections.abc import Callable, Sequence
from typing import Any

from tvm_ffi import Object

from .ir import Expr

class Tensor(Object):
    @property
    def shape(self) -> Sequence[Expr]: ...
    @property
    def dtype(self) -> str: ...
    def __call__(self, *indices: Expr | int) -> Expr: ...

def compute(
    shape: Sequence[Expr | int], fcompute: Callable[..., Expr], name: str = "compute", tag: str = ""
) -> Tensor: ...
def reduce_axis(dom: Sequence[Expr | int], name: str = "rv") -> Any: ...
def sum(expr: Expr, axis: Any) -> Expr: ...
def max(expr: Expr, axis: Any) -> Expr: ...
def extern(
    shape: Sequence[Any],
    inputs: Sequence[Tensor],
    fcompute: Callable[..., Any],
    name: str = "extern",
    dtype: Any = None,
) -> Any: ...
def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Any: ...
