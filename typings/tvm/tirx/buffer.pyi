from collections.abc import Sequence
from typing import Any

from tvm.ir import Expr, PrimType, Span, Type, Var
from tvm.ir.expr import PrimLike

Buffer = Var

class BufferType(Type): ...

def decl_buffer(
    shape: Sequence[PrimLike] | PrimLike,
    dtype: str | PrimType | None = None,
    name: str = "buffer",
    data: Expr | None = None,
    strides: Sequence[PrimLike] | None = None,
    elem_offset: PrimLike | None = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    span: Span | None = None,
    layout: Any = "default",
) -> Buffer: ...
