"""From a function of Relax to an ONNX model."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper
from tvm import ir, relax
from tvm.ir import IRModule

from ..graph.calls import op_name
from ..graph.shapes import dtype_of
from . import elementwise, images, tensors
from .elementwise import Handler
from .transposes import with_folded_transposes
from .writer import OPSET, NotExported, Writer, element_type, static_shape

HANDLERS = {
    f"relax.{name}": handler
    for name, handler in {**elementwise.HANDLERS, **tensors.HANDLERS, **images.HANDLERS}.items()
}
"""How each operator is written."""


def exported(
    func: relax.Function,
    mod: IRModule | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> onnx.ModelProto:
    """``func`` as a model; ``mod`` has the functions that it calls, which are written in place of their calls.

    Sizes are fixed. ``inputs`` and ``outputs`` are names; by default those of the parameters, and ``result_0`` and so
    on. Raises NotExported with the operator and the reason.
    """
    writer = Writer()
    names = [writer.name(name) for name in inputs or [str(param.name) for param in func.params]]
    writer.values.update(zip(func.params, names, strict=True))
    results = _body(writer, func, mod)
    given = outputs or [f"result_{number}" for number in range(len(results))]
    # A name may be that of an input or of another result: each result is a node of its own.
    made = [writer.name(name) for name in given]
    for result, name in zip(results, made, strict=True):
        writer.nodes.append(helper.make_node("Identity", [result], [name]))
    types = list(func.ret_ty.fields) if isinstance(func.ret_ty, relax.TupleType) else [func.ret_ty]
    graph = helper.make_graph(
        writer.nodes,
        "main",
        [_described(name, param) for name, param in zip(names, func.params, strict=True)],
        [_described(name, ty) for name, ty in zip(made, types, strict=True)],
        writer.constants,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return with_folded_transposes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="unity_collage")
    )


def why_not_exported(call: relax.Call) -> str | None:
    """Why a call of an operator cannot be written, or None; no weights are copied to find out."""
    name = op_name(call)
    writer = Writer()
    for arg in call.args:
        for leaf in arg.fields if isinstance(arg, relax.Tuple) else [arg]:
            if isinstance(leaf, (relax.Var, ir.GenericConst)) and leaf not in writer.values:
                writer.values[leaf] = _placeholder(writer, leaf.ty)
    try:
        _check_types(call.ty)
        _handler(name)(writer, call)
    except NotExported as error:
        return str(error)
    return None


def _placeholder(writer: Writer, ty: ir.Type) -> object:
    if isinstance(ty, relax.TupleType):
        return [_placeholder(writer, field) for field in ty.fields]
    return writer.name("operand")


def _check_types(ty: ir.Type) -> None:
    """Raises NotExported for results with element types that ONNX lacks."""
    for field in ty.fields if isinstance(ty, relax.TupleType) else [ty]:
        if isinstance(field, relax.TensorType):
            element_type(dtype_of(field))


def _handler(name: str) -> Handler:
    """The handler of the operator ``name``; raises NotExported for unknown ones.

    The handler's errors name the operator.
    """
    handler = HANDLERS.get(name)
    short = name.removeprefix("relax.")
    if handler is None:
        raise NotExported(f"{short} has no counterpart in ONNX here")

    def named(writer: Writer, call: relax.Call) -> object:
        try:
            return handler(writer, call)
        except NotExported as error:
            raise NotExported(f"{short}: {error}") from error

    return named


def _described(name: str, of: relax.Expr | ir.Type) -> onnx.ValueInfoProto:
    if not isinstance(of.ty if isinstance(of, relax.Expr) else of, relax.TensorType):
        raise NotExported(f"{name} is not a tensor")
    return helper.make_tensor_value_info(name, element_type(dtype_of(of)), list(static_shape(of)))


def _body(writer: Writer, func: relax.Function, mod: IRModule | None) -> list[str]:
    """Writes the bindings of a function; the result is what it returns, a tuple as its fields."""
    local: dict[relax.Var, relax.Function] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Function):
                local[binding.var] = value
            else:
                writer.values[binding.var] = _written(writer, binding, local, mod)
    return _flat(writer.value(func.body.body))


def _flat(value: object) -> list[str]:
    return [part for item in value for part in _flat(item)] if isinstance(value, list) else [str(value)]


def _written(
    writer: Writer, binding: relax.Binding, local: dict[relax.Var, relax.Function], mod: IRModule | None
) -> object:
    value = binding.value
    if isinstance(value, relax.TupleGetItem):
        return writer.value(value.tuple_value)[value.index]
    if not isinstance(value, relax.Call):
        return writer.value(value)
    name = op_name(value)
    if not name:
        return _called(writer, value, local, mod)
    return _handler(name)(writer, value)


def _called(
    writer: Writer, call: relax.Call, local: dict[relax.Var, relax.Function], mod: IRModule | None
) -> object:
    """The results of a call of a function; its body is written in place."""
    callee = local.get(call.op) if isinstance(call.op, relax.Var) else None
    if callee is None and isinstance(call.op, ir.GlobalVar) and mod is not None:
        found = mod[call.op]
        callee = found if isinstance(found, relax.Function) else None
    if callee is None:
        raise NotExported("it calls a function that is not one of Relax")
    # A second call of a function binds its variables again.
    writer.values.update(zip(callee.params, [writer.value(arg) for arg in call.args], strict=True))
    results = _body(writer, callee, mod)
    return results if isinstance(callee.ret_ty, relax.TupleType) else results[0]
