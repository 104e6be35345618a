"""Makes and runs kernels of the backend under examination, and compares them with numpy; inside a worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax
from tvm.ir import IRModule
from tvm.target import Target

from ...annotations import COMPILED_AS, LIFTED
from ...backends.base import Backend
from ...database.rows import FailureKind
from ...lowering import library_file
from ...lowering.build import build
from ...lowering.fuse import fused
from ...lowering.offload import offloaded_module
from ...lowering.outline import global_var
from ...lowering.outlined import external_function, with_parts_inside
from ...lowering.tir_hook import calling, lowered_to_tir
from ...measure import judge
from ...measure.guard import output_types, outputs_of
from ...measure.inputs import random_inputs
from ...measure.judge import Trial, outputs_or_refusal, outvoted, trial_of, trials, why_not_expected
from ...measure.kernels import make_kernel
from ...measure.refusal import Refusal, Refused, refusal_of
from ...rewrites.constants import constant
from ...target import device_of

Stage = Callable[[str], None]
Run = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""Maps the inputs of a kernel to its results."""


def _no_preparation(_module: Any) -> None:
    """The default: nothing is done before the first run."""


@dataclass(frozen=True)
class KernelPlace:
    """Where kernels run: between guard pages of the CPU, or on a device."""

    target: Target
    run: judge.Run = outputs_of
    prepare: Callable[[Any], None] = _no_preparation
    """Called with the module of a kernel before its first run; it lets a library choose an algorithm."""


class NotHere(Exception):
    """The library has no implementation of a kernel on this device; the text is its reason."""


_SIZES = (1, 2, 33)
"""The sizes at which kernels with free sizes are examined."""


def at_sizes(func: relax.Function) -> Iterator[relax.Function]:
    """``func`` itself; with free sizes, its kernel at several sizes, the smallest ones among them."""
    names = [var.name for var in relax.analysis.defined_symbolic_vars(func)]
    for size in _SIZES if names else ():
        yield func.bind_symbolic_vars(dict.fromkeys(names, size)).with_attr(COMPILED_AS, func)
    if not names:
        yield func


def examined(func: relax.Function, backend: Backend, place: KernelPlace, stage: Stage) -> str | None:
    """Make the kernel of ``func``, run it between guard pages on two sets of inputs, and on the first set again.

    The result says how the last run differs from the first, or is None. Raises NotHere if the library chooses nothing
    for it on this device, and Refused for everything else that is wrong.
    """
    stage("computing the reference")
    asked, count = trials(func), _activations(func)
    stage("building")
    with compile_errors():
        made = make_kernel(func, asked[0].inputs, backend, place.target)
    _prepare(made.module, place)
    kernel, constants = made.function, made.constants
    stage("running")
    results = outputs_or_refusal(func, asked, kernel, constants, place.run)
    for refusal in outvoted(func, asked, {backend.name: results}).values():
        raise Refused(refusal)
    stage("running again")
    again = place.run(kernel, asked[0].inputs[:count], constants, func, True)
    equal = all(one.tobytes() == other.tobytes() for one, other in zip(results[0], again, strict=True))
    return None if equal else "two runs on equal inputs, with another between them, differ"


def _prepare(module: Any, place: KernelPlace) -> None:
    try:
        place.prepare(module)
    except Exception as error:  # a foreign library failed: its error becomes the reason
        refusal = refusal_of(error, FailureKind.COMPILE_ERROR)
        if refusal.kind is FailureKind.OUT_OF_MEMORY:
            raise Refused(refusal) from error
        raise NotHere(refusal.reason) from error


@contextmanager
def compile_errors() -> Iterator[None]:
    """Raise Refused for any exception inside: the code generator failed."""
    try:
        yield
    except Exception as error:
        raise Refused(refusal_of(error, FailureKind.COMPILE_ERROR)) from error


def together(funcs: Sequence[relax.Function], backend: Backend, place: KernelPlace) -> None:
    """Make all ``funcs`` at once, those with constants twice with other constants; raises Refused if some is wrong."""
    drawn = [(func, random_inputs(func)) for func in funcs]
    drawn += [(func, random_inputs(func, seed=7)) for func in funcs if int(func.attrs[LIFTED])]
    symbols = [f"kernel_{i}" for i in range(len(drawn))]
    external = [
        external_function(_bound(func, arrays), backend.name, "candidate", symbol)
        for (func, arrays), symbol in zip(drawn, symbols, strict=True)
    ]
    assert backend.codegen is not None
    with compile_errors():
        modules = list(backend.codegen(external, {}, {}))
    for (func, arrays), symbol in zip(drawn, symbols, strict=True):
        kernel = _function(modules, symbol)
        if kernel is None:
            reason = f"{len(drawn)} functions were given at once, and {symbol} is in none of the modules"
            raise Refused(Refusal(reason, FailureKind.COMPILE_ERROR))
        _verify(
            func,
            [trial_of(func, arrays)],
            _destination_passing(func, kernel, device_of(place.target)),
            symbol,
        )


def export(funcs: Sequence[relax.Function], backend: Backend, target: Target, path: Path) -> None:
    """Write a library with a function ``run_<i>`` for each of ``funcs``, as ``Program.save`` writes one."""
    with target:
        mod = fused(offloaded_module(_program(funcs, backend)), target)
    library_file.export(
        build(mod, target), path, facts={}
    )  # it is read as a library, and not loaded as a program


def load(funcs: Sequence[relax.Function], target: Target, path: Path) -> None:
    """Run the library that :func:`export` wrote; raises Refused for numbers that differ from numpy's."""
    device = device_of(target)
    machine = relax.VirtualMachine(library_file.read(path), device)
    for number, func in enumerate(funcs):
        _verify(func, trials(func), _returning(machine[f"run_{number}"], device), f"function {number}")


def _verify(func: relax.Function, asked: list[Trial], run: Run, name: str) -> None:
    """Raises Refused unless ``run`` computes ``func``."""
    results = [run(trial.inputs[: _activations(func)]) for trial in asked]
    for trial, got in zip(asked, results, strict=True):
        wrong = why_not_expected(func, trial, got)
        if wrong is not None:
            raise Refused(Refusal(f"{name}: {wrong.reason}", wrong.kind))
    for refusal in outvoted(func, asked, {name: results}).values():
        raise Refused(refusal)


def _activations(func: relax.Function) -> int:
    return len(func.params) - int(func.attrs[LIFTED])


def _bound(func: relax.Function, arrays: Sequence[np.ndarray]) -> relax.Function:
    """``func`` with its lifted constants bound, as in a program."""
    first = _activations(func)
    values: Mapping[Any, Any] = {
        var: constant(arrays[first + i]) for i, var in enumerate(func.params[first:])
    }
    bare = func.without_attr(LIFTED)
    return bare.bind_params(values) if values else bare


def _function(modules: Sequence[tvm.runtime.Module], symbol: str) -> Any:
    """The function ``symbol`` of the first module that has one."""
    for module in modules:
        if module.implements_function(symbol, query_imports=True):
            return module.get_function(symbol, query_imports=True)
    return None


def _destination_passing(func: relax.Function, kernel: Any, device: tvm.runtime.Device) -> Run:
    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs = [tvm.runtime.empty(shape, dtype, device) for shape, dtype in output_types(func)]
        kernel(*(tvm.runtime.tensor(array, device) for array in arrays), *outputs)
        return [output.numpy() for output in outputs]

    return run


def _returning(function: Any, device: tvm.runtime.Device) -> Run:
    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        result = function(*(tvm.runtime.tensor(array, device) for array in arrays))
        results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [tensor.numpy() for tensor in results]

    return run


def _program(funcs: Sequence[relax.Function], backend: Backend) -> IRModule:
    """A module like those of SearchPartition, in which ``run_<i>`` calls the kernel of ``funcs[i]``."""
    functions: dict[relax.GlobalVar, ir.BaseFunc] = {}
    for number, func in enumerate(funcs):
        symbol, arrays, count = f"kernel_{number}", random_inputs(func), _activations(func)
        constants: list[relax.Expr] = []
        if backend.codegen is None:
            constants = [constant(array) for array in arrays[count:]]
        if backend.lower_to_tir is not None:
            prim = lowered_to_tir(func, backend)
            functions[tir := global_var(f"{symbol}_tir", prim)] = prim
            kernel = calling(func, tir)
        elif backend.codegen is None:
            kernel = with_parts_inside(func).without_attr(LIFTED).with_attr("Primitive", 1)
        else:
            kernel = external_function(_bound(func, arrays), backend.name, "candidate", symbol)
        callee = global_var(symbol, kernel)
        functions[callee] = kernel
        name = f"run_{number}"
        params = [relax.Var(param.name, param.ty) for param in func.params[:count]]
        builder = relax.BlockBuilder()
        with builder.function(name, params):
            with builder.dataflow():
                call = relax.Call(callee, [*params, *constants], ret_ty=func.ret_ty)
                result = builder.emit_output(call)
            builder.emit_func_output(result)
        caller = builder.get()[name]
        functions[global_var(name, caller)] = caller
    return relax.transform.Normalize()(IRModule(functions))
