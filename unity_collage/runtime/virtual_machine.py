"""TVM's virtual machine for a program, started without TVM's compiler."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from threading import Lock
from typing import Any, TypeVar

from unity_collage.runtime import cuda, streams
from unity_collage.runtime.libraries import load_tvm_runtime
from unity_collage.runtime.vendors import VENDORS

from ..ffi import import_without_torch, tvm_ffi

_Result = TypeVar("_Result")
_POOLED = 2
"""The allocator of a VM, which keeps memory for reuse."""

_HOST = "cpu:0"
"""The last device of a VM, which has the shapes."""

_TYPES = {"cpu": 1, "cuda": 2}
"""The kinds of devices, as DLPack numbers them."""

PLACED = "collage_placed"
"""The function of a program that returns the constants of other devices than the first, which ``main`` takes last."""


STARTING = Lock()
"""Held while a virtual machine starts, which reads the constants of its executable; these are away while a program is
written.
"""


class Machines:
    """The VMs of one program, which share its weights; ``executable``: TVM's, or the module of a loaded one.

    Compiled functions keep no state in their VM, so all threads use one. A VM that interprets bytecode has one stack,
    so each call takes a VM that no other call uses.

    On a CUDA device each VM has a copy of TVM's constants, and calls are launched in order
    (:mod:`unity_collage.runtime.streams`).
    """

    def __init__(self, executable: Any, devices: Sequence[str] = (_HOST,)):
        """``devices``: such as ``("cpu:0", "cpu:1")``, in the order in which the program numbers them.

        Raises RuntimeError where CUDA is unavailable.
        """
        load_tvm_runtime()
        self._has_gpu = any(kind_of(device) == "cuda" for device in devices)
        if self._has_gpu:
            cuda.load()
        self._devices = tuple(devices)
        self._module = executable if isinstance(executable, tvm_ffi.Module) else executable.jit()
        self.first = self.started()
        """A module with the program's functions, ``get_function_arity`` and ``get_function_param_name``."""
        self._free = [self.first]
        self.placed: tuple[Any, ...] = self._placed()
        """The last arguments of ``main``: constants on other devices than the first."""

    def started(self) -> tvm_ffi.Module:
        """A new VM, which also has ``save_function``."""
        machine = self._module["vm_load_executable"]()
        with streams.alone() if self._has_gpu else nullcontext(), STARTING:  # constants are copied
            machine["vm_initialization"](*_initialization(self._devices))
        return machine

    def main(self) -> Callable[..., Any]:
        """``main`` of the program; any thread may call it."""
        is_compiled = self._module.implements_function("__vmtir__main", query_imports=True)
        call = self.first["main"] if is_compiled else self._on_a_free_machine
        if placed := self.placed:
            bare = call
            call = lambda *arguments: bare(*arguments, *placed)  # noqa: E731
        return streams.in_order(call) if self._has_gpu else call

    def _placed(self) -> tuple[Any, ...]:
        has_any = any(
            self._module.implements_function(name, query_imports=True)
            for name in (PLACED, f"__vmtir__{PLACED}")
        )
        return tuple(self.first[PLACED]()) if has_any else ()

    def _on_a_free_machine(self, *arguments: Any) -> Any:
        try:
            machine = self._free.pop()
        except IndexError:
            machine = self.started()
        try:
            return machine["main"](*arguments)
        finally:
            self._free.append(machine)


def kind_of(device: str) -> str:
    """``cpu`` of ``cpu:1``."""
    return device.partition(":")[0]


def _initialization(devices: Sequence[str]) -> tuple[int, ...]:
    """The devices of a VM and their allocators, the host last, as TVM's VM takes them."""
    numbers: list[int] = []
    for device in (*devices, *([] if kind_of(devices[-1]) == "cpu" else [_HOST])):
        kind, _, number = device.partition(":")
        numbers += [_TYPES[kind], int(number), _POOLED]
    return tuple(numbers)


def modules_in(executable: Any) -> Iterator[tvm_ffi.Module]:
    """The module of a program, and those that it imports."""
    modules = [executable if isinstance(executable, tvm_ffi.Module) else executable.mod]
    while modules:
        module = modules.pop()
        yield module
        modules.extend(module.imports)


def runtimes_in(executable: Any) -> list[str]:
    """The native backends of the modules that a program imports."""
    kinds = {str(module.kind) for module in modules_in(executable)}
    return [name for name in VENDORS if f"collage.{name}" in kinds]


def with_functions_of_tvm(call: Callable[[], _Result]) -> _Result:
    """The result of ``call``. If it lacks a function, that function is looked up, and ``call`` is called again.

    It may be an operator of PyTorch. A few operators, such as ``unique``, call functions of TVM that are written in
    Python: TVM's packages for it are imported, which takes a second and 200 MB.

    Another thread may look up the function at the same time. So ``call`` fails only if it lacks a function again.
    """
    missing = set[str]()
    while True:
        try:
            return call()
        except Exception as error:
            lacks = re.search("Cannot find.*", str(error))
            if lacks is None or lacks[0] in missing:
                raise
            missing.add(lacks[0])
            _look_up(lacks[0])


def _look_up(error: str) -> None:
    """Register the function that an error names, if it is known where it is.

    Raises RuntimeError for a function that only the caller can register.
    """
    from unity_collage.runtime import custom_ops, torch_calls  # most programs call no such function

    if torch_calls.register_missing(error):
        return
    if reason := custom_ops.why_not_found(error):
        raise RuntimeError(reason)
    import_without_torch("tvm.relax")
