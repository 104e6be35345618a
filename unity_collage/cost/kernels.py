"""Making a kernel exactly as the final program will have it, but alone and callable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx
from tvm.ir import IRModule
from tvm.target import Target

from .. import reference
from ..backends.base import Backend
from ..graph.extract import LIFTED
from ..passes.fuse_remaining import FuseRemaining
from ..passes.outlined import external_function


class NoKernel(Exception):
    """The backend does not make one kernel of this; the text is the reason."""


def build_kernel(
    func: relax.Function, arrays: Sequence[np.ndarray], backend: Backend, target: Target
) -> tuple[Any, list[tvm.runtime.Tensor]]:
    """A kernel in destination-passing style, and its constant operands as it wants them.

    It takes the activations of ``func``, these constants, and the outputs. ``arrays`` are values for all
    parameters; those of lifted constants are data: a library keeps them, TVM may have stored them anew.
    """
    if backend.codegen is None:
        return _tvm_kernel(func, arrays, target)
    return _library_kernel(func, arrays, backend), []


def activation_tensors(func: relax.Function, arrays: Sequence[np.ndarray]) -> list[tvm.runtime.Tensor]:
    """The input tensors of the kernel of :func:`build_kernel` that are no constants."""
    return [tvm.runtime.tensor(array) for array in arrays[: len(arrays) - int(func.attrs[LIFTED])]]


def output_tensors(func: relax.Function) -> list[tvm.runtime.Tensor]:
    """Uninitialised tensors for the results of ``func``."""
    types = func.ret_ty.fields if isinstance(func.ret_ty, relax.TupleType) else [func.ret_ty]
    shapes = [tuple(int(extent) for extent in ty.shape.values) for ty in types]
    return [tvm.runtime.empty(shape, str(ty.dtype)) for shape, ty in zip(shapes, types, strict=True)]


def expected_outputs(func: relax.Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What ``func`` computes: by numpy where it can, else by TVM's unscheduled kernels for a generic CPU."""
    plain = func.without_attr(LIFTED)
    try:
        return reference.run(plain, arrays)
    except reference.Unsupported:
        module = IRModule({"main": plain.with_attr("global_symbol", "main")})
        machine = relax.VirtualMachine(relax.build(module, Target("llvm")), tvm.cpu())
        result = machine["main"](*[tvm.runtime.tensor(array) for array in arrays])
        results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [tensor.numpy() for tensor in results]


def why_wrong(got: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float) -> str | None:
    """How far ``got`` is off, as a reason, or None if every error is within ``tolerance`` of the range."""
    for number, (value, right) in enumerate(zip(got, expected, strict=True)):
        value, right = value.astype(np.float64), right.astype(np.float64)
        if not np.array_equal(np.isfinite(value), np.isfinite(right)):
            return f"wrong numbers: output {number} is not finite where the reference is, or the reverse"
        finite = np.isfinite(right)
        scale = max(float(np.max(np.abs(right), initial=0.0, where=finite)), 1e-30)
        error = float(np.max(np.abs(value - right), initial=0.0, where=finite)) / scale
        if error > tolerance:
            return (
                f"wrong numbers: output {number} is off by {error:.1e} of its range (allowed {tolerance:.0e})"
            )
    return None


def _library_kernel(func: relax.Function, arrays: Sequence[np.ndarray], backend: Backend) -> Any:
    values = _constants(func, arrays)
    bound = func.without_attr(LIFTED).bind_params(values) if values else func.without_attr(LIFTED)
    external = external_function(bound, backend.name, "candidate", "candidate")
    assert backend.codegen is not None
    for module in backend.codegen([external], {}, {}):
        kernel = module.get_function("candidate", query_imports=True)
        if kernel is not None:
            return kernel
    raise NoKernel(f"the code generator of {backend.name} made no function")


def _constants(func: relax.Function, arrays: Sequence[np.ndarray]) -> dict[relax.Var, relax.Expr]:
    """The values of the parameters that are constants in the program."""
    first = len(func.params) - int(func.attrs[LIFTED])
    return {var: relax.const(arrays[first + i]) for i, var in enumerate(func.params[first:])}


def _tvm_kernel(
    func: relax.Function, arrays: Sequence[np.ndarray], target: Target
) -> tuple[Any, list[tvm.runtime.Tensor]]:
    with target:
        lowered = FuseRemaining()(_caller(func, _constants(func, arrays)))
    kernels = {gvar: f for gvar, f in lowered.functions_items() if isinstance(f, tirx.PrimFunc)}
    if len(kernels) != 1:
        raise NoKernel(f"TVM makes {len(kernels)} kernels of it, not one")
    (kernel,) = kernels.values()
    library = tvm.compile(IRModule({"kernel": kernel.with_attr("global_symbol", "kernel")}), target=target)
    return library["kernel"], _constants_of_call(lowered["main"])


def _caller(func: relax.Function, constants: Mapping[relax.Var, relax.Expr]) -> IRModule:
    """A module whose ``main`` takes the activations of ``func`` and calls it with them and ``constants``."""
    builder = relax.BlockBuilder()
    callee = builder.add_func(func.without_attr(LIFTED).with_attr("Primitive", 1), "kernel")
    params = [relax.Var(param.name, param.ty) for param in func.params if param not in constants]
    with builder.function("main", params):
        with builder.dataflow():
            args = [*params, *constants.values()]
            result = builder.emit_output(relax.Call(callee, args, ret_ty=func.ret_ty))
        builder.emit_func_output(result)
    return builder.get()


def _constants_of_call(main: relax.Function) -> list[tvm.runtime.Tensor]:
    """The constants that ``main`` passes to its one kernel, behind its own parameters and in order."""
    values = [binding.value for block in main.body.blocks for binding in block.bindings]
    (call,) = [v for v in values if isinstance(v, relax.Call) and v.op == ir.Op.get("relax.call_tir")]
    args, count = list(call.args[1]), len(main.params)
    if not all(arg.same_as(param) for arg, param in zip(args, main.params, strict=False)):
        raise NoKernel("TVM passes other activations to the kernel, or in another order")
    return [constant.value for constant in args[count:]]
