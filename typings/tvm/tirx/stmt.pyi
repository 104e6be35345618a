from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import tvm_ffi
from tvm.ir import Expr, Range, Span, TensorRegion, Var
from tvm.ir.expr import PrimLike
from tvm.runtime import Scriptable
from tvm_ffi import Object

from .buffer import Buffer
from .expr import IterVar

class Stmt(Object, Scriptable):
    span: Span | None

class Bind(Stmt):
    var: Var
    value: Expr
    def __init__(self, var: Var, value: PrimLike, span: Span | None = None) -> None: ...

class ForKind(IntEnum):
    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4

class For(Stmt):
    loop_var: Var
    min: Expr
    extent: Expr
    kind: int
    body: Stmt
    thread_binding: IterVar | None
    annotations: tvm_ffi.Map[str, Any]
    step: Expr | None
    def __init__(
        self,
        loop_var: Var,
        min: PrimLike,
        extent: PrimLike,
        kind: ForKind | int,
        body: Stmt,
        thread_binding: IterVar | None = None,
        annotations: Mapping[str, Any] | None = None,
        step: PrimLike | None = None,
        span: Span | None = None,
    ) -> None: ...

class While(Stmt):
    condition: Expr
    body: Stmt
    def __init__(self, condition: PrimLike, body: Stmt, span: Span | None = None) -> None: ...

class BufferStore(Stmt):
    buffer: Buffer
    value: Expr
    indices: tvm_ffi.Array[Expr]
    def __init__(
        self, buffer: Buffer, value: PrimLike, indices: Sequence[PrimLike], span: Span | None = None
    ) -> None: ...

class AttrStmt(Stmt):
    node: Any
    attr_key: str
    value: Expr
    body: Stmt
    def __init__(
        self, node: Any, attr_key: str, value: PrimLike, body: Stmt, span: Span | None = None
    ) -> None: ...

class SeqStmt(Stmt):
    seq: tvm_ffi.Array[Stmt]
    def __init__(self, seq: Sequence[Stmt], span: Span | None = None) -> None: ...
    def __getitem__(self, i: int) -> Stmt: ...
    def __len__(self) -> int: ...

class IfThenElse(Stmt):
    condition: Expr
    then_case: Stmt
    else_case: Stmt | None
    def __init__(
        self, condition: PrimLike, then_case: Stmt, else_case: Stmt | None, span: Span | None = None
    ) -> None: ...

class Evaluate(Stmt):
    value: Expr
    def __init__(self, value: PrimLike, span: Span | None = None) -> None: ...

class Return(Stmt):
    value: Expr
    def __init__(self, value: Expr, span: Span | None = None) -> None: ...

def BufferRegion(buffer: Buffer, region: Sequence[Range]) -> TensorRegion: ...
def stmt_seq(*args: Stmt | Expr) -> Stmt: ...
