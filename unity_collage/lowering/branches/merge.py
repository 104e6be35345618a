"""Stages as kernels: a parallel loop, in which each iteration calls the kernels of a lane one after the other.

A parallel loop inside a parallel loop is serial on our pool, so the kernels do not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from typing import Any

import tvm
from tvm import ir, relax, tirx
from tvm.ir import IRModule
from tvm.tirx.stmt import Stmt

from ...backends.native.program import item_size
from ...schedule.build import with_buffers
from ...schedule.stage import nodes
from ...tvm_private import give_type
from .calls import Calls
from .scratch import BranchScratch
from .stages import Lane, Stage

_PREFIX = "stage_"
_OPAQUE = 8
_CALL = ir.Op.get("tirx.tvm_call_cpacked")
_ATTRS = {"op_pattern": _OPAQUE, "s_tir": True, "tirx.is_scheduled": True, "tirx.noalias": True}


def staged(mod: IRModule, calls: Calls, stages: Sequence[Stage], name: str = "main") -> IRModule:
    """``mod`` with the bindings of ``mod[name]`` in the order of ``stages``, with a kernel for each of several lanes.

    The kernel of a stage calls other kernels by their symbols, which they get here.
    """
    functions = dict(mod.functions_items())
    earlier = sum(gvar.name_hint.startswith(_PREFIX) for gvar in functions)
    fresh = (f"{_PREFIX}{number}" for number in count(earlier))
    bindings: list[relax.Binding] = []
    for stage in stages:
        if len(stage) == 1:
            bindings += (calls.bindings[number] for number in stage[0])
            continue
        kernel = _kernel_of(calls, stage, next(fresh))
        functions[kernel.name] = kernel.func
        bindings += kernel.bindings()
        for callee in (calls.bindings[number].value.args[0] for lane in stage for number in lane):
            functions[callee] = functions[callee].with_attr("global_symbol", callee.name_hint)
    func = calls.func
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], func.body.body)
    functions[mod.get_global_var(name)] = relax.BlockBuilder().normalize(
        relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
    )
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def is_stage(gvar: ir.GlobalVar, func: ir.BaseFunc) -> bool:
    """Whether a function of a module is the kernel of a stage, which calls those of its lanes."""
    return (
        str(gvar.name_hint).startswith(_PREFIX)
        and isinstance(func, tirx.PrimFunc)
        and any(call.op == _CALL for call in nodes(func.body, ir.Call))
    )


@dataclass(frozen=True, slots=True)
class _StageKernel:
    """The kernel of a stage: its inputs, the outputs that others read, and its scratch memory, if it needs any."""

    name: ir.GlobalVar
    func: tirx.PrimFunc
    inputs: list[Any]
    outputs: list[Any]
    scratch_bytes: int

    def bindings(self) -> list[relax.Binding]:
        """The call of the kernel, and its results bound to the variables that they had."""
        types = [var.ty for var in self.outputs]
        if self.scratch_bytes:
            types.append(relax.TensorType((self.scratch_bytes,), "uint8"))
        results = relax.DataflowVar(self.name.name_hint, relax.TupleType(types))
        call = relax.VarBinding(results, relax.call_tir(self.name, self.inputs, types))
        fields = (
            relax.VarBinding(var, relax.TupleGetItem(results, position))
            for position, var in enumerate(self.outputs)
        )
        return [call, *fields]


def _kernel_of(calls: Calls, stage: Stage, name: str) -> _StageKernel:
    steps = [number for lane in stage for number in lane]
    variables = {number: calls.bindings[number].var for number in steps}
    scratch = BranchScratch.of(
        stage, calls.readers_within(stage), {number: _nbytes(var) for number, var in variables.items()}
    )
    memory = _decl_buffer([scratch.nbytes], "uint8", "scratch")
    outputs = [variables[number] for number in steps if number not in scratch.offsets]
    buffers = [_buffer(var, f"output_{position}") for position, var in enumerate(outputs)]
    place: dict[Any, Any] = {var: buffer.data for var, buffer in zip(outputs, buffers, strict=True)}
    for number, offset in scratch.offsets.items():
        place[variables[number]] = tirx.address_of(memory[offset])
    inputs: list[Any] = []
    taken: list[Any] = []
    for number in steps:
        for value in calls.bindings[number].value.args[1]:
            if value not in place:
                inputs.append(value)
                taken.append(_buffer(value, f"input_{len(taken)}"))
                place[value] = taken[-1].data
    lane = tirx.Var("lane", "int32")
    turn = _choice(lane, [_in_order(calls, lane_steps, place) for lane_steps in stage])
    loop = tirx.For(lane, 0, len(stage), tirx.ForKind.PARALLEL, turn)
    # TVM looks for reshapes in the root block of kernels with one input.
    body = with_buffers([], loop, "root")
    func: Any = tirx.PrimFunc([*taken, *buffers, *([memory] if scratch.nbytes else [])], body)
    func = func.with_attr(_ATTRS)
    gvar = ir.GlobalVar(name)
    give_type(gvar, func.ty)
    return _StageKernel(gvar, func, inputs, outputs, scratch.nbytes)


def _in_order(calls: Calls, lane: Lane, place: Mapping[Any, Any]) -> Stmt:
    statements = [_run(calls.bindings[number], place) for number in lane]
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)


def _run(binding: Any, place: Mapping[Any, Any]) -> Stmt:
    """A call of a kernel with tensors that are made on the stack.

    ``tvm_stack_make_array`` is simpler, but makes tensors of bfloat16 as uint16: TVM replaces that type by integers
    before it reads the type of the array.
    """
    callee, arguments = binding.value.args[0], binding.value.args[1]
    values = [*arguments, binding.var]
    memory = {
        "tensors": tirx.tvm_stack_alloca("array", len(values)),
        "extents": tirx.tvm_stack_alloca("shape", sum(len(_shape(value)) for value in values)),
    }
    tensors, extents = (tirx.Var(name, space.ty) for name, space in memory.items())
    statements: list[Stmt] = [
        tirx.Bind(variable, space)
        for variable, space in zip((tensors, extents), memory.values(), strict=True)
    ]
    first = 0
    for position, value in enumerate(values):
        shape = _shape(value)
        statements += [
            _set(extents, first + axis, _EXTENT, tirx.const(extent, "int64"))
            for axis, extent in enumerate(shape)
        ]
        here = tirx.handle_add_byte_offset(extents, first * item_size("int64"))
        fields = _fields(place[value], here, len(shape), tvm.DataType(str(value.ty.dtype)))
        statements += [_set(tensors, position, field, content) for field, content in fields.items()]
        first += len(shape)
    passed = [tirx.tvm_struct_get(tensors, position, _ADDRESS, "handle") for position in range(len(values))]
    return tirx.SeqStmt([*statements, tirx.Evaluate(tirx.call_cpacked(callee.name_hint, *passed))])


_ADDRESS, _DATA, _SHAPE, _STRIDES, _RANK, _CODE, _BITS, _LANES, _OFFSET, _DEVICE_ID, _DEVICE = range(11)
_EXTENT = 17
"""Numbers of ``tvm::tirx::builtin::TVMStructFieldKind``: the fields of a DLTensor, and an element of its shape."""


def _fields(data: Any, shape: Any, rank: int, dtype: tvm.DataType) -> dict[int, Any]:
    """The fields of a DLTensor on the CPU, in row-major order."""
    return {
        _DATA: data,
        _SHAPE: shape,
        _STRIDES: tirx.reinterpret("handle", tirx.const(0, "uint64")),
        _RANK: tirx.const(rank, "int32"),
        _CODE: tirx.const(int(dtype.type_code), "uint8"),
        _BITS: tirx.const(dtype.bits, "uint8"),
        _LANES: tirx.const(1, "uint16"),
        _OFFSET: tirx.const(0, "uint64"),
        _DEVICE_ID: tirx.const(0, "int32"),
        _DEVICE: tirx.const(tvm.cpu().dlpack_device_type(), "int32"),
    }


def _set(memory: Any, index: int, field: int, value: Any) -> Stmt:
    return tirx.Evaluate(tirx.tvm_struct_set(memory, index, field, value))


def _choice(lane: tirx.Var, bodies: Sequence[Stmt]) -> Stmt:
    """The ``lane``-th of the ``bodies``."""
    chosen = bodies[-1]
    for number in reversed(range(len(bodies) - 1)):
        chosen = tirx.IfThenElse(tirx.EQ(lane, number), bodies[number], chosen)
    return chosen


def _buffer(value: Any, name: str) -> Any:
    return _decl_buffer(_shape(value), str(value.ty.dtype), name)


def _decl_buffer(shape: Sequence[int], dtype: str, name: str) -> Any:
    """A buffer in row-major order, which functions with blocks express by no layout."""
    row_major: Any = None
    return tirx.decl_buffer(shape, dtype, name, layout=row_major)


def _shape(value: Any) -> list[int]:
    return [int(extent) for extent in value.ty.shape]


def _nbytes(value: Any) -> int:
    return prod(_shape(value)) * item_size(str(value.ty.dtype))
