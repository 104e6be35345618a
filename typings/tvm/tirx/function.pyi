from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm.ir import BaseFunc, DictAttrs, Span, Type, Var

from .stmt import Stmt

class PrimFunc(BaseFunc):
    params: tvm_ffi.Array[Var]
    ret_type: Type
    body: Stmt
    def __init__(
        self,
        params: Sequence[Var],
        body: Stmt,
        ret_type: Type | None = None,
        attrs: DictAttrs | Mapping[str, Any] | None = None,
        span: Span | None = None,
    ) -> None: ...
    def with_body(self, new_body: Stmt, span: Span | None = None) -> PrimFunc: ...
