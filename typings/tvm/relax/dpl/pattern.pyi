from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm.ir import DictAttrs, Expr, Node, Type, Var
from tvm.ir.expr import PrimLike

class DFPattern(Node):
    def __call__(
        self, *args: DFPattern, varg_default_wildcard: bool = False, add_constraint: bool = True
    ) -> CallPattern: ...
    def __or__(self, other: DFPattern) -> OrPattern: ...
    def __and__(self, other: DFPattern) -> AndPattern: ...
    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern: ...
    def match(self, expr: Expr, var2val: Mapping[Var, Expr] | None = None) -> bool: ...
    def extract_matched_expr(
        self, expr: Expr, var2val: Mapping[Var, Expr] | None = None
    ) -> tvm_ffi.Map[DFPattern, Expr] | None: ...
    def dup(self) -> DFPattern: ...

class ExprPattern(DFPattern):
    expr: Expr
    def __init__(self, expr: Expr) -> None: ...

class ConstantPattern(DFPattern):
    def __init__(self) -> None: ...

class WildcardPattern(DFPattern):
    def __init__(self) -> None: ...

class CallPattern(DFPattern):
    op: DFPattern
    args: tvm_ffi.Array[DFPattern]
    def __init__(
        self,
        op: DFPattern,
        args: Sequence[DFPattern],
        varg_default_wildcard: bool = False,
        add_constraint: bool = True,
    ) -> None: ...

class TuplePattern(DFPattern):
    fields: tvm_ffi.Array[DFPattern]
    def __init__(self, fields: Sequence[DFPattern]) -> None: ...
    def __getitem__(self, index: int | None) -> TupleGetItemPattern: ...
    def __len__(self) -> int: ...

class TupleGetItemPattern(DFPattern):
    tuple: DFPattern
    index: int
    def __init__(self, tuple_value: DFPattern, index: int | None = None) -> None: ...

class OrPattern(DFPattern):
    left: DFPattern
    right: DFPattern
    def __init__(self, left: DFPattern, right: DFPattern) -> None: ...

class AndPattern(DFPattern):
    left: DFPattern
    right: DFPattern
    def __init__(self, left: DFPattern, right: DFPattern) -> None: ...

class TypePattern(DFPattern):
    pattern: DFPattern
    ty: Type
    def __init__(self, pattern: DFPattern, ty: Type) -> None: ...

class DataTypePattern(DFPattern):
    pattern: DFPattern
    dtype: tvm_ffi.dtype
    def __init__(self, pattern: DFPattern, dtype: str) -> None: ...

class ShapePattern(DFPattern):
    pattern: DFPattern
    shape: tvm_ffi.Array[Expr]
    def __init__(self, pattern: DFPattern, shape: Sequence[PrimLike]) -> None: ...

class AttrPattern(DFPattern):
    pattern: DFPattern
    attrs: DictAttrs
    def __init__(self, pattern: DFPattern, attrs: DictAttrs) -> None: ...

def is_const() -> ConstantPattern: ...
def is_op(op_name: str) -> ExprPattern: ...
def wildcard() -> WildcardPattern: ...
