from collections.abc import Sequence

import tvm_ffi
from tvm.ir import Expr, PrimType, Span
from tvm.ir import TupleType as TupleType
from tvm.ir import Type as Type
from tvm.ir.expr import PrimLike

from .global_info import VDevice

class AnyType(Type):
    def __init__(self, span: Span | None = None) -> None: ...

ObjectType = AnyType

class ShapeType(Type):
    values: tvm_ffi.Array[Expr] | None
    ndim: int
    def __init__(
        self, values: Sequence[PrimLike] | None = None, ndim: int = -1, span: Span | None = None
    ) -> None: ...

class TensorType(Type):
    """A tensor's type; a dimension or element type that is not known is None or, for ``ndim``, -1."""

    shape: Expr | None
    dtype: PrimType | None
    vdevice: VDevice | None
    ndim: int
    def __init__(
        self,
        shape: Expr | Sequence[PrimLike] | None = None,
        dtype: str | PrimType | None = "float32",
        vdevice: VDevice | str | None = None,
        ndim: int = -1,
        span: Span | None = None,
    ) -> None: ...

class FuncType(Type):
    params: tvm_ffi.Array[Type] | None
    ret: Type
    purity: bool
    def __init__(
        self, params: Sequence[Type], ret: Type, purity: bool = True, span: Span | None = None
    ) -> None: ...
