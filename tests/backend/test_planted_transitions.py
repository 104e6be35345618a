"""A transition that is there is found: two backends whose kernels wait if the other one has run before them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.ir import IRModule

from unity_collage import host_target
from unity_collage.measure.transitions import SIZES, transitions
from unity_collage.testing.fake_backend import fake_backend, only_backends

_TURN = "testing.planted_transition"
_KERNEL, _SLOW = 50e-6, 500e-6
"""Seconds of a kernel, and of a transition of values from 256 KiB on."""


@pytest.fixture(autouse=True)
def kernel_that_waits() -> None:
    last = [0]

    def turn(source: tvm_ffi.Tensor, result: tvm_ffi.Tensor, number: int) -> None:
        is_large = 4 * int(np.prod(source.shape)) >= SIZES[1]
        end = time.perf_counter() + _KERNEL + (_SLOW if is_large and number != last[0] else 0.0)
        last[0] = number
        while time.perf_counter() < end:
            pass

    tvm_ffi.register_global_func(_TURN, turn, override=True)


def _codegen(number: int) -> Any:
    def codegen(functions: Sequence[relax.Function], *_: object) -> list[Any]:
        kernels = {str(func.attrs["global_symbol"]): _kernel(func, number) for func in functions}
        built = tvm.compile(IRModule(kernels), host_target())
        return [built.mod]

    return codegen


def _kernel(func: relax.Function, number: int) -> tirx.PrimFunc:
    source = te.placeholder([int(extent) for extent in func.params[0].ty.shape], "float32", "source")
    result = te.extern(
        source.shape,
        [source],
        lambda ins, outs: tirx.call_packed(_TURN, ins[0], outs[0], number),
        dtype="float32",
    )
    return te.create_prim_func([source, result]).with_attr("global_symbol", str(func.attrs["global_symbol"]))


def test_a_transition_is_found_at_the_sizes_that_have_it() -> None:
    one = fake_backend("one", "relax.abs", codegen=_codegen(1))
    two = fake_backend("two", "relax.abs", codegen=_codegen(2))
    with only_backends(one, two):
        found = transitions(host_target(), [one, two], print)
    assert not found.unknown
    assert found.seconds.keys() == {"one>two", "two>one"}
    (_, small), (_, middle), (_, large) = found.seconds["one>two"]
    assert small == 0.0
    assert min(middle, large) > 0.5 * _SLOW
