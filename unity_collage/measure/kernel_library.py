"""A kernel as files, so that one machine can build it and another one can time it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.ir import IRModule
from tvm.script import tirx as T
from tvm.target import Target

from .. import runtime
from ..backends.registry import find
from ..lowering import library_file, writing
from ..runtime.vendors import VENDORS
from .kernels import Kernel


@T.prim_func(s_tir=True)
def _nothing(a: T.Buffer((1,), "float32")) -> None:  # pyright: ignore
    T.func_attr({"global_symbol": "nothing"})
    for i in range(1):
        with T.sblock("write"):
            vi = T.axis.spatial(1, i)
            a[vi] = T.float32(0)


def write(kernel: Kernel, target: Target, library: Path, constants: Path) -> None:
    """Write the object code and, as numpy's ``npz``, the constants."""
    module = kernel.module
    if module.kind not in ("llvm", "c"):  # only generated code can be linked; it imports the module
        module = tvm.compile(IRModule({"nothing": _nothing}), target=target).mod
        module.import_module(kernel.module)
    writing.write(module, library)
    with constants.open("wb") as file:
        np.savez(file, *[constant.numpy() for constant in kernel.constants])


def read(backend: str, library: str, constants: str) -> Kernel:
    """The kernel of ``backend`` that :func:`write` wrote."""
    found = find(backend)
    for name in ({backend} & VENDORS.keys()) | (found.libraries if found is not None else set()):
        runtime.load(name)
    module: Any = library_file.read(library)
    with np.load(constants) as stored:
        tensors = [tvm.runtime.tensor(stored[name]) for name in stored.files]
    return Kernel(module, tensors)
