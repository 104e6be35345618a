"""The PrimFuncs that a function calls with ``call_tir``: which may be fused, and digests by which they are compared."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import tvm_ffi
from tvm import ir, relax, s_tir, tirx
from tvm.ir import IRModule

from ..legalization.wide_indexes import is_buffer, is_plain, with_wide_indexes
from .calls import op_name
from .kinds import OpKind

CALL_TIR = "relax.call_tir"

SCHEDULED = "tirx.is_scheduled"
"""Attribute of a PrimFunc: its loops stay as they are."""

_NAMES = ("global_symbol", "op_pattern")
"""Attributes of a PrimFunc that do not change what it computes, or how."""


def prim_func_of(value: relax.Expr, mod: IRModule | None) -> tirx.PrimFunc | None:
    """The PrimFunc that ``value`` calls with ``call_tir``; None for other values, and where ``mod`` lacks it."""
    callee = callee_of(value)
    found = None if mod is None or callee is None else mod.functions.get(callee)
    return found if isinstance(found, tirx.PrimFunc) else None


def callee_of(value: relax.Expr) -> relax.GlobalVar | None:
    """The name of the PrimFunc that ``value`` calls with ``call_tir``; None for other values."""
    if not isinstance(value, relax.Call) or op_name(value) != CALL_TIR:
        return None
    callee = value.args[0]
    return callee if isinstance(callee, relax.GlobalVar) else None


def prim_funcs_called(func: relax.Function, mod: IRModule | None) -> IRModule:
    """The PrimFuncs of ``mod`` that ``func`` calls with ``call_tir``, as a module."""
    found: dict[relax.GlobalVar, tirx.PrimFunc] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            callee, prim = callee_of(binding.value), prim_func_of(binding.value, mod)
            if callee is not None and prim is not None:
                found[callee] = prim
    return IRModule(found)


def tensors_of(call: relax.Call) -> tuple[relax.Expr, ...]:
    """The operands of a ``call_tir``: tensors, and numbers."""
    passed = call.args[1]
    return tuple(passed.fields) if isinstance(passed, relax.Tuple) else (passed,)


def why_not_fused(call: relax.Call, prim: tirx.PrimFunc) -> str | None:
    """Why the loops of ``prim``, which ``call`` calls, stay a kernel of their own, or None."""
    if is_scheduled(prim):
        return f"it is scheduled already ({SCHEDULED}), and stays as it is"
    if not isinstance(call.args[1], relax.Tuple):
        return "its operands are one tuple, whose fields are not known here"
    for param, operand in zip(prim.params, tensors_of(call), strict=False):
        if not is_buffer(param) and not isinstance(operand, (tirx.IntImm, tirx.FloatImm)):
            return f"it takes a number {param.name} that is not a constant"
    return why_not_loops(prim)


def is_scheduled(prim: ir.BaseFunc) -> bool:
    """Whether the loops of a PrimFunc are final: fusion and schedules leave it alone."""
    attrs: Any = prim.attrs or {}
    return bool(attrs.get(SCHEDULED, False))


@lru_cache(maxsize=1024)
def why_not_loops(prim: tirx.PrimFunc) -> str | None:
    """Why the body of ``prim`` cannot be written into another kernel, or None; indexes may become int64 for that."""
    prim = with_wide_indexes(prim)
    body = prim.body
    if not isinstance(body, s_tir.SBlockRealize) or body.block.iter_vars:
        return "its body is not a root block"
    reasons = (_why_not_buffer(param) for param in prim.params)
    if reason := next((reason for reason in reasons if reason), None):
        return reason
    called = call_with_effects(body)
    return called and f"it calls {called}, which may have effects"


def call_with_effects(body: Any) -> str | None:
    """The name of the first function called in ``body``, a statement, that may have effects, or None."""
    calls: list[ir.Call] = []
    walk: Any = tvm_ffi.structural_walk  # type: ignore[reportUnknownMemberType]
    walk(body, (ir.Call, calls.append))
    opaque = next((call.op for call in calls if not _is_pure(call.op)), None)
    return opaque and str(getattr(opaque, "name", opaque))


def _is_pure(op: relax.Expr) -> bool:
    return isinstance(op, ir.Op) and op.get_attr("TCallEffectKind") in _PURE


def _why_not_buffer(param: tirx.Var) -> str | None:
    """Why ``param`` cannot be replaced by memory of another kernel, or None: FuseTIR compares their types."""
    if not is_buffer(param):
        return None
    extents: list[Any] = list(param.shape)
    if any(str(extent.ty.dtype) != "int64" for extent in extents):
        return f"the sizes of {param.name} are not int64, as those of Relax are"
    return None if is_plain(param) else f"{param.name} is not plain memory in row-major order"


_PURE = (None, 0, 1, 2)
"""``tirx.CallEffectKind``: expressions, reads of constants, and pure calls. Operators without a kind are pure."""


def prim_kinds(prims: Iterable[tirx.PrimFunc]) -> dict[tirx.PrimFunc, OpKind]:
    """The kind of each PrimFunc: its attribute ``op_pattern``, else what ``AnnotateTIROpPattern`` finds."""
    distinct = list(dict.fromkeys(prims))
    mod = IRModule({relax.GlobalVar(f"k{i}"): prim for i, prim in enumerate(distinct)})
    annotated = relax.transform.AnnotateTIROpPattern()(mod)
    attrs: list[Any] = [annotated[f"k{i}"].attrs or {} for i in range(len(distinct))]
    return {
        prim: OpKind(int(own.get("op_pattern", OpKind.OPAQUE)))
        for prim, own in zip(distinct, attrs, strict=True)
    }


@lru_cache(maxsize=1024)
def prim_digest(prim: tirx.PrimFunc) -> str:
    """A digest of 16 hex digits: equal for PrimFuncs with equal parameters, loops and attributes.

    Names do not count.
    """
    bare = prim
    for name in _NAMES:
        bare = bare.without_attr(name)
    return f"{tvm_ffi.structural_hash(bare) % (1 << 64):016x}"
