from collections.abc import Sequence

from tvm.ir import Range, Span, TensorLoad
from tvm.ir import Var as Var
from tvm.ir.expr import PrimLike
from tvm.ir.prim import EQ as EQ
from tvm.ir.prim import GE as GE
from tvm.ir.prim import GT as GT
from tvm.ir.prim import LE as LE
from tvm.ir.prim import LT as LT
from tvm.ir.prim import NE as NE
from tvm.ir.prim import Add as Add
from tvm.ir.prim import And as And
from tvm.ir.prim import BitwiseAnd as BitwiseAnd
from tvm.ir.prim import BitwiseNot as BitwiseNot
from tvm.ir.prim import BitwiseOr as BitwiseOr
from tvm.ir.prim import BitwiseXor as BitwiseXor
from tvm.ir.prim import Cast as Cast
from tvm.ir.prim import Div as Div
from tvm.ir.prim import FloatImm as FloatImm
from tvm.ir.prim import FloorDiv as FloorDiv
from tvm.ir.prim import FloorMod as FloorMod
from tvm.ir.prim import IntImm as IntImm
from tvm.ir.prim import Let as Let
from tvm.ir.prim import LShift as LShift
from tvm.ir.prim import Max as Max
from tvm.ir.prim import Min as Min
from tvm.ir.prim import Mod as Mod
from tvm.ir.prim import Mul as Mul
from tvm.ir.prim import Not as Not
from tvm.ir.prim import Or as Or
from tvm.ir.prim import Ramp as Ramp
from tvm.ir.prim import RShift as RShift
from tvm.ir.prim import Select as Select
from tvm.ir.prim import Shuffle as Shuffle
from tvm.ir.prim import Sub as Sub
from tvm.ir.type import PrimType
from tvm.runtime import Scriptable
from tvm_ffi import Object

from .buffer import Buffer

class IterVar(Object, Scriptable):
    DataPar: int
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
