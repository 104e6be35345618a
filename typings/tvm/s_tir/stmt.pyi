from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm.ir import Expr, Span, TensorRegion
from tvm.runtime import Scriptable
from tvm.tirx.buffer import Buffer
from tvm.tirx.expr import IterVar
from tvm.tirx.stmt import Stmt
from tvm_ffi import Object

class MatchBufferRegion(Object, Scriptable):
    buffer: Buffer
    source: TensorRegion
    def __init__(self, buffer: Buffer, source: TensorRegion) -> None: ...

class SBlock(Stmt):
    iter_vars: tvm_ffi.Array[IterVar]
    reads: tvm_ffi.Array[TensorRegion]
    writes: tvm_ffi.Array[TensorRegion]
    name_hint: str
    alloc_buffers: tvm_ffi.Array[Buffer]
    match_buffers: tvm_ffi.Array[MatchBufferRegion]
    annotations: tvm_ffi.Map[str, Any]
    init: Stmt | None
    body: Stmt
    def __init__(
        self,
        iter_vars: Sequence[IterVar],
        reads: Sequence[TensorRegion],
        writes: Sequence[TensorRegion],
        name_hint: str,
        body: Stmt,
        init: Stmt | None = None,
        alloc_buffers: Sequence[Buffer] | None = None,
        match_buffers: Sequence[MatchBufferRegion] | None = None,
        annotations: Mapping[str, Any] | None = None,
        span: Span | None = None,
    ) -> None: ...

class SBlockRealize(Stmt):
    iter_values: tvm_ffi.Array[Expr]
    predicate: Expr
    block: SBlock
    def __init__(
        self,
        iter_values: Sequence[Expr],
        predicate: Expr | bool,
        block: SBlock,
        span: Span | None = None,
    ) -> None: ...
