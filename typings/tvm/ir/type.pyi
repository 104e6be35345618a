from collections.abc import Sequence

import tvm_ffi

from ..runtime import Scriptable
from .base import Node, Span

class Type(Node, Scriptable):
    def is_missing(self) -> bool: ...
    # Added by tvm.relax.
    def is_base_of(self, derived: Type) -> bool: ...

class PrimType(Type):
    dtype: tvm_ffi.dtype
    def __init__(self, dtype: str) -> None: ...

class TupleType(Type):
    fields: tvm_ffi.Array[Type]
    def __init__(self, fields: Sequence[Type], span: Span | None = None) -> None: ...
