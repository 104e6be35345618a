"""Small Relax functions, lowered to native modules and run against the numpy reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax

from unity_collage import reference, runtime
from unity_collage.backends import onednn, openblas

LOWER = {"onednn": onednn.lower, "openblas": openblas.lower}

Shape = Any
"""A tuple of ints; TVM wants expressions."""

op: Any = relax.op
nn: Any = relax.op.nn
"""TVM annotates its operators more narrowly than they are."""


def function(body: Callable[..., relax.Expr], *shapes: Shape, dtype: str = "float32") -> relax.Function:
    """``body`` of parameters of ``shapes``, its nested calls bound one by one; it may return a tuple."""
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(*params))
        builder.emit_func_output(result)
    return builder.get()["main"]


def bound(expr: relax.Expr) -> Any:
    """The variable that holds ``expr``, inside a body."""
    builder: Any = relax.BlockBuilder.current()
    return builder.emit(expr)


def constant(*shape: int, seed: int = 7) -> relax.Expr:
    """Normal numbers."""
    return relax.const(np.random.default_rng(seed).standard_normal(shape, dtype="float32"))


def module_of(library: str, *functions: relax.Function) -> tvm_ffi.Module:
    """The functions as ``main``, ``main1`` ... of one native module."""
    runtime.load(library)
    names = [f"main{i or ''}" for i in range(len(functions))]
    return tvm_ffi.get_global_func(f"collage.{library}.create")(*LOWER[library](functions, names))


def run(module: tvm_ffi.Module, inputs: Sequence[np.ndarray], like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs, which are shaped as ``like``."""
    results = [np.full_like(array, 77) for array in like]
    module.get_function("main")(*(tvm_ffi.from_dlpack(a) for a in (*inputs, *results)))
    return results


def inputs_of(func: relax.Function, *, positive: bool = False) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    types: list[Any] = [param.ty for param in func.params]
    shapes = [tuple(int(extent) for extent in ty.shape.values) for ty in types]
    arrays = [generator.standard_normal(shape, dtype="float32") for shape in shapes]
    return [np.abs(array) + np.float32(0.1) for array in arrays] if positive else arrays


def assert_same_numbers(library: str, func: relax.Function, *, positive: bool = False) -> str:
    """The lowered function agrees with numpy; what the library chose for each step, as text."""
    module = module_of(library, func)
    inputs = inputs_of(func, positive=positive)
    expected = [np.ascontiguousarray(array) for array in reference.run(func, inputs)]
    for have, want in zip(run(module, inputs, expected), expected, strict=True):
        scale = max(1.0, float(np.abs(np.where(np.isfinite(want), want, 0)).max()))
        np.testing.assert_allclose(have, want, rtol=2e-5, atol=2e-5 * scale)
    return module.inspect_source("implementations")
