"""Kernels that compute the right numbers with numpy, slowly, and then misbehave on demand.

They are made and called like real ones: a code generator returns a runtime module, which is compiled and called through
the FFI. Only the body is Python.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import IRModule
from tvm.runtime import Module

from .. import reference
from ..backends.base import Codegen
from ..graph.shapes import extents_of, tensor_type

Arrays = Sequence[np.ndarray]
Misbehaviour = Callable[[Arrays, Arrays], None]
"""Called with the inputs and the outputs; the outputs already hold the right numbers."""

_CHUNK_BYTES = 32 << 20
_LARGE = 30.0
"""Random inputs are always smaller than this; edge values are larger."""
_counter = itertools.count()


def _segfault(_inputs: Arrays, _outputs: Arrays) -> None:
    ctypes.memset(64, 0, 1)


def _hang(_inputs: Arrays, _outputs: Arrays) -> None:
    while True:
        time.sleep(1)


def _allocate_without_end(_inputs: Arrays, _outputs: Arrays) -> None:
    hoard: list[bytes] = []
    while True:
        hoard.append(os.urandom(1) * _CHUNK_BYTES)


def _spoil(_inputs: Arrays, outputs: Arrays) -> None:
    outputs[0].flat[-1] += 1


def _spoil_large(inputs: Arrays, outputs: Arrays) -> None:
    if any(np.max(np.abs(array), initial=0) > _LARGE for array in inputs):
        _spoil(inputs, outputs)


def _leave_out_one(_inputs: Arrays, outputs: Arrays) -> None:
    outputs[0].flat[-1] = np.nan


def _write_behind(_inputs: Arrays, outputs: Arrays) -> None:
    ctypes.memset(outputs[0].ctypes.data + outputs[0].nbytes, 0, outputs[0].itemsize)


def _write_far_behind(_inputs: Arrays, outputs: Arrays) -> None:
    ctypes.memset(outputs[0].ctypes.data + outputs[0].nbytes + 4096, 0, outputs[0].itemsize)


def _write_before(_inputs: Arrays, outputs: Arrays) -> None:
    ctypes.memset(outputs[0].ctypes.data - outputs[0].itemsize, 0, outputs[0].itemsize)


def _read_before(inputs: Arrays, _outputs: Arrays) -> None:
    ctypes.string_at(inputs[0].ctypes.data - inputs[0].itemsize, inputs[0].itemsize)


def _write_input(inputs: Arrays, _outputs: Arrays) -> None:
    ctypes.memset(inputs[0].ctypes.data, 0, inputs[0].itemsize)


def _exit(_inputs: Arrays, _outputs: Arrays) -> None:
    os._exit(0)


def _raise(_inputs: Arrays, _outputs: Arrays) -> None:
    raise ValueError("this kernel raises")


MISBEHAVIOURS: dict[str, Misbehaviour] = {
    "none": lambda inputs, outputs: None,
    "segfault": _segfault,
    "hang": _hang,
    "allocates_without_end": _allocate_without_end,
    "wrong_numbers": _spoil,
    "wrong_on_edges": _spoil_large,
    "nan": _leave_out_one,
    "writes_behind_output": _write_behind,
    "writes_far_behind_output": _write_far_behind,
    "writes_before_output": _write_before,
    "reads_before_input": _read_before,
    "writes_input": _write_input,
    "exits": _exit,
    "slow": lambda inputs, outputs: time.sleep(0.02),
    "raises": _raise,
}
"""What a kernel does after it has computed its outputs, by name."""

CANNOT_COMPILE = "cannot_compile"


def codegen(misbehaviour: str) -> Codegen:
    """A code generator whose kernels misbehave; ``misbehaviour`` is in ``MISBEHAVIOURS``, or ``CANNOT_COMPILE``."""

    def generate(
        functions: Sequence[relax.Function], _options: Mapping[str, Any], _names: Mapping[Any, str]
    ) -> list[Module]:
        if misbehaviour == CANNOT_COMPILE:
            raise ValueError("this code generator cannot compile")
        return [_module(func, MISBEHAVIOURS[misbehaviour]) for func in functions]

    return generate


def _module(func: relax.Function, misbehave: Misbehaviour) -> Module:
    """A compiled function with the symbol of ``func``, which calls the Python body."""
    results = func.ret_ty.fields if isinstance(func.ret_ty, relax.TupleType) else [func.ret_ty]
    types = [tensor_type(ty) for ty in (*(param.ty for param in func.params), *results)]
    name = f"{__name__}.{next(_counter)}"

    def run(*pointers: ctypes.c_void_p) -> None:
        arrays = [_array(pointer, ty) for pointer, ty in zip(pointers, types, strict=True)]
        inputs, outputs = arrays[: len(func.params)], arrays[len(func.params) :]
        for output, value in zip(outputs, reference.run(func, inputs), strict=True):
            output[...] = value
        misbehave(inputs, outputs)

    tvm_ffi.register_global_func(name, run)
    symbol = str(func.attrs["global_symbol"])
    made = tvm.script.from_source(_caller(symbol, name, types))
    return tvm.compile(IRModule({symbol: made}), target="llvm").mod


def _caller(symbol: str, callback: str, types: Sequence[relax.TensorType]) -> str:
    """The script of a PrimFunc that passes its buffers to ``callback``."""
    params = [f'b{i}: T.Buffer({extents_of(ty)}, "{ty.dtype}")' for i, ty in enumerate(types)]
    data = "".join(f", b{i}.data" for i in range(len(types)))
    return f"""
@T.prim_func(s_tir=True)
def {symbol}({", ".join(params)}):
    T.func_attr({{"global_symbol": "{symbol}"}})
    T.evaluate(T.call_packed("{callback}"{data}))
"""


def _array(pointer: ctypes.c_void_p, ty: relax.TensorType) -> np.ndarray:
    shape, dtype = extents_of(ty), np.dtype(str(ty.dtype))
    nbytes = int(np.prod(shape)) * dtype.itemsize
    memory = (ctypes.c_byte * nbytes).from_address(int(pointer.value or 0))
    return np.ndarray(shape, dtype, memoryview(memory))
