"""A kernel as files, so that one machine can build it and another one can time it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    """Write the object code and, in TVM's format for parameters, the constants: numpy's files keep no bfloat16."""
    module = kernel.module
    if module.kind not in ("llvm", "c"):  # only generated code can be linked; it imports the module
        module = tvm.compile(IRModule({"nothing": _nothing}), target=target).mod
        module.import_module(kernel.module)
    writing.write(module, library)
    named = {str(number): constant for number, constant in enumerate(kernel.constants)}
    constants.write_bytes(tvm.runtime.save_param_dict(named))


def read(backend: str, library: str, constants: str) -> Kernel:
    """The kernel of ``backend`` that :func:`write` wrote."""
    found = find(backend)
    for name in ({backend} & VENDORS.keys()) | (found.libraries if found is not None else set()):
        runtime.load(name)
    module: Any = library_file.read(library)
    stored = tvm.runtime.load_param_dict(Path(constants).read_bytes())
    return Kernel(module, [stored[str(number)] for number in range(len(stored))])
