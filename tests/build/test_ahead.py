"""Kernels that are compiled in threads are those that are compiled one by one."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import relax as R

from unity_collage.annotations import LIFTED
from unity_collage.backends.registry import get
from unity_collage.lowering import function_objects
from unity_collage.lowering.object_store import ObjectStore, using
from unity_collage.measure.ahead import compiling_ahead
from unity_collage.measure.inputs import random_inputs
from unity_collage.measure.kernels import (
    LoweredKernel,
    NoKernel,
    activation_tensors,
    make_kernel,
    output_tensors,
    tvm_kernel,
)
from unity_collage.target import host_target
from unity_collage.testing.conformance.cases import function

TARGET, TVM = host_target(), get("tvm")


def scaled(size: int) -> relax.Function:
    """x * w; the second parameter is a constant of the kernel."""
    func = function(lambda x, w: R.multiply(x, w), [(size,), (size,)])
    return func.without_attr("global_symbol").with_attr(LIFTED, 1)


def lowered(size: int) -> LoweredKernel:
    func = scaled(size)
    return tvm_kernel(func, random_inputs(func), TVM, TARGET)


def refused() -> LoweredKernel:
    raise NoKernel("TVM makes 2 kernels of it, not one")


def test_threads_compile_the_same_code() -> None:
    with compiling_ahead() as ahead:
        for size in range(8, 20):
            ahead.begin(str(size), lambda size=size: lowered(size))
        found = dict(ahead.finished())
    assert list(found) == [str(size) for size in range(8, 20)]
    for size in (8, 19):
        with using(ObjectStore()):  # compiled again
            alone = function_objects.function_object(lowered(size).func, TARGET)
        assert alone is not None and found[str(size)].compiled == alone


def test_a_kernel_is_made_of_what_was_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    func = scaled(33)
    arrays = random_inputs(func)
    with compiling_ahead() as ahead:
        ahead.begin("kernel", lambda: tvm_kernel(func, arrays, TVM, TARGET))
        ((_, known),) = ahead.finished()
    monkeypatch.setattr(function_objects, "_compiled", None)  # nothing is compiled any more
    made = make_kernel(func, arrays, TVM, TARGET, only_here=True, lowered=known)
    (result,) = output_tensors(func)
    made.function(*activation_tensors(func, arrays), *made.constants, result)
    np.testing.assert_array_equal(result.numpy(), arrays[0] * arrays[1])


def test_errors_are_left_to_those_who_make_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(functions: object, target: tvm.target.Target) -> bytes:
        raise ValueError("LLVM cannot")

    monkeypatch.setattr(function_objects, "_compiled", failing)
    with compiling_ahead() as ahead, using(ObjectStore()):
        ahead.begin("refused", refused)
        ahead.begin("failing", lambda: lowered(57))
        ((key, known),) = ahead.finished()
    assert key == "failing" and known.compiled is None
