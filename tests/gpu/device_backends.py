"""Backends whose kernels for ReLU run on the device, compute right, and write where they must not.

The workers that measure import this module: a plug-in of an installed package names ``FAKES``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from types import SimpleNamespace
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.runtime import Module

from unity_collage.backends.base import Backend
from unity_collage.graph.shapes import extents_of
from unity_collage.lowering import nvrtc
from unity_collage.target import CUDA, cuda_target
from unity_collage.testing.fake_backend import fake_backend

OFFSETS = {"right": 0, "behind": 1, "nowhere": 1 << 40}
"""How many elements behind its output a kernel writes a zero, by name; 0: it writes none. No device has as much memory
as the last one asks for."""


def _backend(name: str, offset: int) -> Backend:
    def generate(
        functions: Sequence[relax.Function], _options: Mapping[str, Any], _names: Mapping[Any, str]
    ) -> list[Module]:
        return [_module(func, offset) for func in functions]

    made = fake_backend(f"fake_{name}", "relax.nn.relu", codegen=generate)
    return replace(made, kinds=frozenset({CUDA}))


def _module(func: relax.Function, offset: int) -> Module:
    symbol, count = str(func.attrs["global_symbol"]), prod(extents_of(func.params[0]))
    made = tvm.script.from_source(_script(symbol, extents_of(func.params[0]), count, offset))
    nvrtc.register()
    target = cuda_target()
    with target:  # the compiler asks for its architecture
        return tvm.compile(IRModule({symbol: made}), target=target).mod


def _script(symbol: str, shape: tuple[int, ...], count: int, offset: int) -> str:
    """ReLU of up to 1024 elements, a thread for each; the last one writes ``offset`` elements behind the output."""
    behind = f"y[T.int64({count - 1 + offset})] = T.float32(0)" if offset else "T.evaluate(0)"
    return f"""
@T.prim_func(s_tir=True)
def {symbol}(x_handle: T.handle, y_handle: T.handle):
    T.func_attr({{"global_symbol": "{symbol}", "tirx.noalias": True}})
    x_shaped = T.match_buffer(x_handle, {shape})
    y_shaped = T.match_buffer(y_handle, {shape})
    x = T.decl_buffer(({count},), data=x_shaped.data)
    y = T.decl_buffer(({count},), data=y_shaped.data)
    for block in T.thread_binding(1, thread="blockIdx.x"):
        for i in T.thread_binding({count}, thread="threadIdx.x"):
            y[i] = T.max(x[i], T.float32(0))
            if i == {count - 1}:
                {behind}
"""


FAKES = SimpleNamespace(**{name: _backend(name, offset) for name, offset in OFFSETS.items()})
"""The backends as values that entry points can name; :func:`.fake_backend.installed` writes ``fake_`` before a name."""
