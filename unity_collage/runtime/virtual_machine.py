"""TVM's virtual machine for a program, started without TVM's compiler."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

from unity_collage.runtime import cuda, streams
from unity_collage.runtime.libraries import load_tvm_runtime
from unity_collage.runtime.vendors import VENDORS

from ..ffi import import_without_torch, tvm_ffi

_Result = TypeVar("_Result")
_POOLED = 2
"""The allocator of a machine, which keeps memory for reuse."""

_CPU = (1, 0, _POOLED)
_DEVICES = {"cpu": _CPU, "cuda": (2, 0, _POOLED, *_CPU)}
"""The devices of a machine, as DLPack numbers them, and their allocators. The last one, the host, has the shapes."""


class Machines:
    """The machines of one program, which share its weights; ``executable``: TVM's, or the module of a loaded one.

    Compiled functions keep nothing in their machine, so all threads use one. A machine that interprets bytecode has
    one stack, so each call takes one that no other call uses.

    On a CUDA device each machine has a copy of TVM's constants, and calls are launched in order
    (:mod:`unity_collage.runtime.streams`).
    """

    def __init__(self, executable: Any, device: str = "cpu"):
        """``device``: ``"cpu"`` or ``"cuda"``; raises RuntimeError where CUDA is unavailable."""
        load_tvm_runtime()
        if device == "cuda":
            cuda.load()
        self._device = device
        self._module = executable if isinstance(executable, tvm_ffi.Module) else executable.jit()
        self.first = self.started()
        """A module with the program's functions, ``get_function_arity`` and ``get_function_param_name``."""
        self._free = [self.first]

    def started(self) -> tvm_ffi.Module:
        """A new machine, which has ``save_function`` as well."""
        machine = self._module["vm_load_executable"]()
        with streams.alone() if self._device == "cuda" else nullcontext():  # constants are copied
            machine["vm_initialization"](*_DEVICES[self._device])
        return machine

    def main(self) -> Callable[..., Any]:
        """``main`` of the program; any thread may call it."""
        is_compiled = self._module.implements_function("__vmtir__main", query_imports=True)
        call = self.first["main"] if is_compiled else self._on_a_free_machine
        return streams.in_order(call) if self._device == "cuda" else call

    def _on_a_free_machine(self, *arguments: Any) -> Any:
        try:
            machine = self._free.pop()
        except IndexError:
            machine = self.started()
        try:
            return machine["main"](*arguments)
        finally:
            self._free.append(machine)


def runtimes_in(executable: Any) -> list[str]:
    """The native backends whose modules a program imports."""
    kinds: set[str] = set()
    modules = [executable if isinstance(executable, tvm_ffi.Module) else executable.mod]
    while modules:
        module = modules.pop()
        kinds.add(str(module.kind))
        modules.extend(module.imports)
    return [name for name in VENDORS if f"collage.{name}" in kinds]


def with_functions_of_tvm(call: Callable[[], _Result]) -> _Result:
    """What ``call`` returns. Where it lacks a function, TVM's packages for Python are imported, and it is called again.

    They take a second and 200 MB. A few operators, such as ``unique``, call functions that are written in Python.
    """
    try:
        return call()
    except Exception as error:
        if "tvm.relax" in sys.modules or "Cannot find" not in str(error):
            raise
    import_without_torch("tvm.relax")
    return call()
