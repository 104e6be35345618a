"""Builds a kernel as the final program will have it, but alone and callable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx
from tvm.ir import IRModule
from tvm.target import Target

from ..annotations import COMPILED_AS, LIFTED, SCHEDULES, options_of
from ..backends.base import Backend
from ..graph.extract import PRIM_FUNCS, prim_funcs_of
from ..lowering.function_objects import FunctionObject, function_object
from ..lowering.fuse import fused
from ..lowering.linked import linked
from ..lowering.outlined import external_function, with_parts_inside
from ..lowering.set_apart import with_set_apart
from ..lowering.tir_hook import NotLowered, standing_alone
from ..lowering.tuned_layouts import with_free_layouts
from ..rewrites.constants import constant
from ..target import is_cuda
from .guard import output_types

SYMBOL = "candidate"
"""The name of every kernel in its module."""


class NoKernel(Exception):
    """The backend does not make one kernel of a function; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that can be called here, or written to a library for another machine."""

    module: Any
    """Holds the kernel's function, itself or in a module that it imports."""
    constants: list[tvm.runtime.Tensor]
    """The constant operands, in the form in which the kernel reads them."""
    symbol: str = SYMBOL
    """The name of the function."""

    @property
    def function(self) -> Any:
        """The kernel's function; None if the module has none."""
        return self.module.get_function(self.symbol, query_imports=True)


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """A kernel of TVM with its loops."""

    func: tirx.PrimFunc
    constants: list[tvm.runtime.Tensor]
    """The constant operands, in the form in which the kernel reads them."""
    target: Target
    compiled: FunctionObject | None = None
    """Its object code, where that is known."""


def build_kernel(
    func: relax.Function, arrays: Sequence[np.ndarray], backend: Backend, target: Target
) -> tuple[Any, list[tvm.runtime.Tensor]]:
    """The function that :func:`make_kernel` builds, and its constant operands."""
    made = make_kernel(func, arrays, backend, target)
    return made.function, made.constants


def make_kernel(
    func: relax.Function,
    arrays: Sequence[np.ndarray],
    backend: Backend,
    target: Target,
    *,
    only_here: bool = False,
    lowered: LoweredKernel | None = None,
) -> Kernel:
    """A kernel in destination-passing style: it takes the activations of ``func``, its constants, and the outputs.

    ``arrays`` are values for all parameters. A library stores those of lifted constants itself; TVM may pack them.
    With ``only_here`` the kernel cannot be written to a library, and the object code is that which programs link.
    ``lowered``: what :func:`tvm_kernel` has returned for the same arguments.
    """
    if backend.codegen is not None:
        return _library_kernel(func, arrays, backend)
    return _compiled(lowered or tvm_kernel(func, arrays, backend, target), only_here)


def tvm_kernel(
    func: relax.Function, arrays: Sequence[np.ndarray], backend: Backend, target: Target
) -> LoweredKernel:
    """The loops of a kernel that TVM compiles, for a backend without a code generator; raises NoKernel."""
    if backend.lower_to_tir is not None:
        try:
            func = standing_alone(func, backend)
        except NotLowered as refusal:
            raise NoKernel(str(refusal)) from None
    func = compiled_form(func)
    lowered = fused(_caller(func, _constants(func, arrays)), target)
    return LoweredKernel(_only_kernel(lowered), _constants_of_call(lowered["main"]), target)


def activation_arrays(func: relax.Function, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """The inputs of a kernel that are not constants."""
    return arrays[: len(arrays) - int(func.attrs[LIFTED])]


def activation_tensors(func: relax.Function, arrays: Sequence[np.ndarray]) -> list[tvm.runtime.Tensor]:
    """The input tensors of a kernel that are not constants."""
    return [tvm.runtime.tensor(array) for array in activation_arrays(func, arrays)]


def output_tensors(func: relax.Function) -> list[tvm.runtime.Tensor]:
    """Uninitialised tensors for the results of ``func``."""
    return [tvm.runtime.empty(shape, dtype) for shape, dtype in output_types(func)]


def unscheduled_outputs(func: relax.Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of TVM's own kernels for a generic CPU, without schedules of ours."""
    main = relax.GlobalVar("main"), _bare(func).with_attr("global_symbol", "main")
    module = IRModule(dict([*prim_funcs_of(func).functions_items(), main]))
    machine = relax.VirtualMachine(relax.build(with_set_apart(module), Target("llvm")), tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(array) for array in arrays])
    results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [tensor.numpy() for tensor in results]


def unscheduled_kernel(func: relax.Function, target: Target) -> tirx.PrimFunc:
    """TVM's kernel for ``func`` before it is scheduled, for a tuner; raises NoKernel where TVM makes several.

    A schedule may change the layout of its constants.
    """
    mod = fused(_caller(func, {}), target, schedule=False)
    return _only_kernel(with_free_layouts(mod, mod["main"].params[len(func.params) - _lifted(func) :]))


def lowered_kernel(func: relax.Function, target: Target) -> tirx.PrimFunc:
    """TVM's scheduled kernel for ``func``; raises NoKernel where TVM makes several."""
    return _only_kernel(fused(_caller(func, {}), target, pack=False))


def _library_kernel(func: relax.Function, arrays: Sequence[np.ndarray], backend: Backend) -> Kernel:
    func = compiled_form(func)
    values = _constants(func, arrays)
    bound = func.without_attr(LIFTED).bind_params(values) if values else func.without_attr(LIFTED)
    external = external_function(bound, backend.name, SYMBOL, SYMBOL)
    assert backend.codegen is not None
    for module in backend.codegen([external], options_of(external), {}):
        kernel = Kernel(module, [])
        if kernel.function is not None:
            return kernel
    raise NoKernel(f"the code generator of {backend.name} made no function")


def _constants(func: relax.Function, arrays: Sequence[np.ndarray]) -> dict[relax.Var, relax.Expr]:
    """Constants for the lifted parameters."""
    first = len(func.params) - _lifted(func)
    return {var: constant(arrays[first + i]) for i, var in enumerate(func.params[first:])}


def _lifted(func: relax.Function) -> int:
    """How many of the last parameters are constants."""
    return int((func.attrs or {}).get(LIFTED, 0))


def _compiled(lowered: LoweredKernel, only_here: bool) -> Kernel:
    target = lowered.target
    alone = lowered.compiled
    if alone is None and only_here and not is_cuda(target):
        alone = function_object(lowered.func, target)
    if alone is not None:
        return Kernel(linked([alone.code]), lowered.constants, alone.symbol)
    with target:  # a compiler for a device asks for its architecture
        kernel = lowered.func.with_attr("global_symbol", SYMBOL)
        library = tvm.compile(IRModule({SYMBOL: kernel}), target=target)
    return Kernel(library.mod, lowered.constants)


def compiled_form(func: relax.Function) -> relax.Function:
    """The function that is compiled: ``func`` itself, or the one with free sizes that is run at its sizes."""
    return (func.attrs or {}).get(COMPILED_AS, func)


def _only_kernel(mod: IRModule) -> tirx.PrimFunc:
    kernels = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    if len(kernels) != 1:
        raise NoKernel(f"TVM makes {len(kernels)} kernels of it, not one")
    return kernels[0]


def _caller(func: relax.Function, constants: Mapping[relax.Var, relax.Expr]) -> IRModule:
    """A module whose ``main`` takes the activations of ``func`` and calls it with them and ``constants``.

    The module gets the schedules that the function carries, since :func:`fused` looks for them there.
    """
    builder = relax.BlockBuilder(prim_funcs_of(func))
    bare = with_parts_inside(_bare(func)).without_attr(SCHEDULES).with_attr("Primitive", 1)
    callee = builder.add_func(bare, "kernel")
    params = [relax.Var(param.name, param.ty) for param in func.params if param not in constants]
    with builder.function("main", params):
        with builder.dataflow():
            args = [*params, *constants.values()]
            result = builder.emit_output(relax.Call(callee, args, ret_ty=func.ret_ty))
        builder.emit_func_output(result)
    mod = builder.get()
    schedules = (func.attrs or {}).get(SCHEDULES)
    return mod if schedules is None else mod.with_attr(SCHEDULES, schedules)


def _bare(func: relax.Function) -> relax.Function:
    """``func`` for a module that has its PrimFuncs."""
    return func.without_attr(LIFTED).without_attr(PRIM_FUNCS).without_attr(COMPILED_AS)


def _constants_of_call(main: relax.Function) -> list[tvm.runtime.Tensor]:
    """The constants that ``main`` passes to its one kernel after its own parameters, in order."""
    values = [binding.value for block in main.body.blocks for binding in block.bindings]
    (call,) = [v for v in values if isinstance(v, relax.Call) and v.op == ir.Op.get("relax.call_tir")]
    passed = call.args[1]
    assert isinstance(passed, relax.Tuple)
    args, count = list(passed.fields), len(main.params)
    if not all(arg.same_as(param) for arg, param in zip(args, main.params, strict=False)):
        raise NoKernel("TVM passes other activations to the kernel, or in another order")
    return [_tensor(constant) for constant in args[count:]]


def _tensor(constant: relax.Expr) -> tvm.runtime.Tensor:
    assert isinstance(constant, ir.GenericConst)
    return constant.value
