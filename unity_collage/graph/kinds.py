"""Operator kinds: how freely an operator fuses with its neighbours.

The kinds are TVM's ``OpPatternKind``. A node's kind is that of its legalized PrimFunc, the kernel which TVM would
generate.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import tvm
from tvm import ir, relax, tirx
from tvm.ir import IRModule

from ..legalization import legalize_ops
from .calls import op_name


class OpKind(IntEnum):
    """TVM's ``OpPatternKind``, in its order: a fused group has the largest kind of its members."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    OUT_EWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


_ROW_WISE = frozenset(
    {
        "relax.nn.softmax",
        "relax.nn.log_softmax",
        "relax.nn.layer_norm",
        "relax.nn.rms_norm",
        "relax.nn.group_norm",
        "relax.nn.instance_norm",
    }
)
"""TVM's analysis calls them OUT_EWISE_FUSABLE because they have several stages. They reduce rows and read them again,
so producers fuse into them as into a reduction."""

LEGALIZED_BY_TARGET = frozenset(
    f"relax.{name}" for name in ("argsort", "bucketize", "cumprod", "cumsum", "sort", "topk")
)
"""Operators that ``LegalizeOps`` leaves unchanged: TVM has a kernel for each target, so they do not fuse."""

_WITHOUT_KERNEL = {
    "constant": OpKind.ELEMENTWISE,
    "getitem": OpKind.INJECTIVE,
    "tuple": OpKind.TUPLE,
    "relax.ewise_fma": OpKind.ELEMENTWISE,
    "relax.builtin.stop_lift_params": OpKind.ELEMENTWISE,
    "relax.memory.view": OpKind.INJECTIVE,
    "relax.memory.ensure_zero_offset": OpKind.INJECTIVE,
}
"""The kinds of nodes without a legalization, which have no PrimFunc to analyse."""


def kind_without_kernel(op: str) -> OpKind:
    """The kind of a node without a kernel of TVM, by its operator name; OPAQUE if it is not known."""
    return _WITHOUT_KERNEL.get(op, OpKind.OPAQUE)


def call_kinds(calls: Iterable[relax.Call]) -> dict[str, OpKind]:
    """The kind of each distinct call, by :func:`call_signature`.

    All distinct calls are legalized in one module, one function each. A call without a legalization, or with a
    data-dependent one, is OPAQUE.
    """
    distinct = {call_signature(call): call for call in calls}
    functions = {f"k{i}": _alone(call) for i, call in enumerate(distinct.values())}
    # LegalizeOps removes private functions that are not called if it makes a kernel for a device: these are public.
    public = {
        name: func.with_attr("global_symbol", name) for name, func in functions.items() if func is not None
    }
    module = IRModule({relax.GlobalVar(name): func for name, func in public.items()})
    lowered = tvm.transform.Sequential([legalize_ops(), relax.transform.AnnotateTIROpPattern()])(module)
    kinds: dict[str, OpKind] = {}
    for i, (signature, call) in enumerate(distinct.items()):
        func = functions[f"k{i}"]
        kinds[signature] = OpKind.OPAQUE if func is None else _kind_of(call, lowered[f"k{i}"], lowered)
    return kinds


def call_signature(call: relax.Call) -> str:
    """Operator, attributes and argument types as text: calls of equal text have equal kernels."""
    args = ", ".join(_argument(arg) for arg in call.args)
    return f"{op_name(call)}({args}){{{call.attrs}}}"


def _argument(arg: relax.Expr) -> str:
    if isinstance(arg, relax.Tuple):
        return "(" + ", ".join(_argument(field) for field in arg.fields) + ")"
    if isinstance(arg, (relax.Var, ir.GenericConst)):
        return str(arg.ty)
    return str(arg)


def _alone(call: relax.Call) -> relax.Function | None:
    """``call`` as a function of its tensor arguments, or None if it cannot stand alone."""
    params: dict[relax.Var, relax.Var] = {}

    def fresh(arg: relax.Expr) -> relax.Expr:
        if isinstance(arg, relax.Tuple):
            return relax.Tuple([fresh(field) for field in arg.fields])
        if isinstance(arg, relax.Var):
            return params.setdefault(arg, relax.Var(arg.name, arg.ty))
        return arg

    args = [fresh(arg) for arg in call.args]
    if any(not isinstance(var.ty, (relax.TensorType, relax.TupleType)) for var in params):
        return None
    builder = relax.BlockBuilder()
    with builder.function("main", list(params.values())):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(call.op, args, call.attrs, call.ty_args))
        builder.emit_func_output(result)
    return builder.get()["main"].without_attr("global_symbol")


def _kind_of(call: relax.Call, func: relax.Function, module: IRModule) -> OpKind:
    """The largest kind among the PrimFuncs that ``func`` calls."""
    if op_name(call) in _ROW_WISE:
        return OpKind.REDUCTION
    found: list[OpKind] = []
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and op_name(value) == "relax.call_tir":
                callee = value.args[0]
                assert isinstance(callee, ir.GlobalVar)
                prim = module[callee]
                assert isinstance(prim, tirx.PrimFunc)
                found.append(OpKind(int(prim.attrs.get("op_pattern", OpKind.OPAQUE))))
            elif isinstance(value, relax.Call):
                return OpKind.OPAQUE
    return max(found, default=OpKind.OPAQUE)
