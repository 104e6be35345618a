from collections.abc import Sequence

from tvm.ir import Range, Span, TensorLoad
from tvm.ir import Var as Var
from tvm.ir.expr import PrimLike
from tvm.ir.prim import *
from tvm.ir.type import PrimType
from tvm.runtime import Scriptable
from tvm_ffi import Object

from .buffer import Buffer

class IterVar(Object, Scriptable):
    DataPar: int
    ThreadIndex: int
    CommReduce: int

    dom: Range
    var: Var
    iter_type: int
    thread_tag: str
    span: Span | None
    def __init__(
        self,
        dom: Range | None,
        var: Var | str,
        iter_type: int,
        thread_tag: str = "",
        span: Span | None = None,
    ) -> None: ...
    def expr_ty(self) -> PrimType: ...

def BufferLoad(buffer: Buffer, indices: Sequence[PrimLike], span: Span | None = None) -> TensorLoad: ...
