from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm.ir import BaseFunc, DictAttrs, GenericConst, Node, PrimType, Span, Type
from tvm.ir import Expr as Expr
from tvm.ir import GlobalVar as GlobalVar
from tvm.ir import Tuple as Tuple
from tvm.ir import TupleGetItem as TupleGetItem
from tvm.ir import Var as Var
from tvm.ir.expr import ExprWithOp, PrimLike
from tvm.runtime import Scriptable, Tensor

from .type import ShapeType

class If(ExprWithOp):
    cond: Expr
    true_branch: SeqExpr
    false_branch: SeqExpr
    def __init__(
        self, cond: Expr, true_branch: Expr, false_branch: Expr, span: Span | None = None
    ) -> None: ...

class ShapeExpr(ExprWithOp):
    values: tvm_ffi.Array[Expr]
    @property
    def ty(self) -> ShapeType: ...
    def __init__(self, values: Sequence[PrimLike], span: Span | None = None) -> None: ...
    def __len__(self) -> int: ...

class DataflowVar(Var): ...

class Binding(Node, Scriptable):
    """A binding, which is one of the two kinds below; both have a value."""

    var: Var
    value: Expr
    span: Span | None

class MatchCast(Binding):
    ty: Type
    def __init__(self, var: Var, value: Expr, ty: Type, span: Span | None = None) -> None: ...

class VarBinding(Binding):
    def __init__(self, var: Var, value: Expr, span: Span | None = None) -> None: ...

class BindingBlock(Node, Scriptable):
    bindings: tvm_ffi.Array[Binding]
    span: Span | None
    def __init__(self, bindings: Sequence[Binding], span: Span | None = None) -> None: ...

class DataflowBlock(BindingBlock): ...

class SeqExpr(ExprWithOp):
    blocks: tvm_ffi.Array[BindingBlock]
    body: Expr
    def __init__(self, blocks: Sequence[BindingBlock], body: Expr, span: Span | None = None) -> None: ...

class Function(BaseFunc):
    params: tvm_ffi.Array[Var]
    body: SeqExpr
    ret_ty: Type
    is_pure: bool
    def __init__(
        self,
        params: Sequence[Var],
        body: Expr,
        ret_ty: Type | None = None,
        is_pure: bool | None = True,
        attrs: DictAttrs | Mapping[str, Any] | None = None,
        span: Span | None = None,
    ) -> None: ...
    def bind_params(self, binding_map: Mapping[Any, PrimLike | Tensor | npt.NDArray[Any]]) -> Function: ...
    def bind_symbolic_vars(self, binding_map: Mapping[Any, PrimLike | int]) -> Function: ...

class ExternFunc(BaseFunc):
    global_symbol: str
    def __init__(self, global_symbol: str, ty: Type | None = None, span: Span | None = None) -> None: ...

def const(
    value: float | npt.NDArray[Any] | np.generic | Sequence[Any] | Tensor, dtype: str | PrimType | None = None
) -> GenericConst: ...
def _update_type(expr: Expr, ty: Type | None) -> None: ...
