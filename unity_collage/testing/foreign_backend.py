"""foreign_backend: a toolchain that is registered only with TVM, for tests of the bridge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import tvm
from tvm import ir
from tvm.relax.backend.pattern_registry import register_patterns
from tvm.relax.transform import FusionPattern
from tvm_ffi.registry import remove_global_func

from ..backends.base import Codegen
from ..backends.foreign.rules import Predicate
from ..tvm_private import remove_patterns


@contextmanager
def foreign_backend(
    name: str,
    patterns: Sequence[FusionPattern] = (),
    predicates: Mapping[str, Predicate] | None = None,
    codegen: Codegen | None = None,
) -> Iterator[None]:
    """Inside the ``with`` block, TVM knows ``patterns``, ``predicates`` of operators, and ``relax.ext.<name>``."""
    register_patterns(list(patterns))
    for op, predicate in (predicates or {}).items():
        ir.register_op_attr(op, f"target.{name}", predicate)
    if codegen is not None:
        tvm.register_global_func(f"relax.ext.{name}", codegen, override=True)
    try:
        yield
    finally:
        remove_patterns([pattern.name for pattern in patterns])
        for op in predicates or {}:
            ir.Op.get(op).reset_attr(f"target.{name}")
        if codegen is not None:
            remove_global_func(f"relax.ext.{name}")
