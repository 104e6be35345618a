"""TVM's FFI, loaded without the modules that running a program does not need.

TVM and its FFI import PyTorch wherever it is installed. That takes seconds and loads another thread pool, and a process
that runs a program, measures kernels or compiles a file needs neither. Where PyTorch is imported already it stays.

The FFI also imports a compiler driver, the exchange of tensors with PyTorch, classes that Python defines for it, and
Python's package metadata. It reads the metadata to find its own library, which is in its own folder. These modules take
longer to import than a small model takes to load. So they are imported when they are first used.

It also imports ml_dtypes, with which it takes the types of that package as arguments. Ours are given by name.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


def import_without_torch(module: str) -> None:
    """Import a module as if PyTorch were not installed. A later ``import torch`` works as usual."""
    with _without("torch"):
        import_module(module)


@contextmanager
def _without(module: str) -> Iterator[None]:
    """Inside the ``with`` block the module seems not to be installed, unless it is imported already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # Python's mark for a module that cannot be imported
    try:
        yield
    finally:
        del sys.modules[module]


class _Later(ModuleType):
    """Stands for a module in those that import it, and imports it when something in it is first asked for."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":  # ``from module import name`` asks whether the module is a package
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def _later(name: str, **meanwhile: Any) -> Iterator[None]:
    """Inside the ``with`` block importing the module gives a stand-in, which has the attributes of ``meanwhile``
    until the end.
    """
    if name in sys.modules:
        yield
        return
    stand_in = sys.modules[name] = _Later(name)
    vars(stand_in).update(meanwhile)
    try:
        yield
    finally:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]
        for key in meanwhile:
            delattr(stand_in, key)


def _no_package(name: str) -> Any:
    raise LookupError(name)


_NO_PACKAGES = {"distribution": _no_package, "PackageNotFoundError": LookupError}
"""The part of ``importlib.metadata`` with which the FFI looks for its library in its own folder."""


_CLASSES = "tvm_ffi.dataclasses"
_METHODS = f"{_CLASSES}.py_class"
"""The modules for classes that Python defines."""


def _method(function: Any) -> Any:
    """Stands for ``tvm_ffi.method``, which marks a method of a class that Python defines."""
    return import_module(_METHODS).method(function)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Imports make little garbage, and the garbage collector takes a tenth of their time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _lightly() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(_without("ml_dtypes"))
        stack.enter_context(_later("tvm_ffi.cpp"))
        stack.enter_context(_later("importlib.metadata", **_NO_PACKAGES))
        stack.enter_context(_later("typing_extensions", get_annotations=inspect.get_annotations))
        stack.enter_context(_later(_CLASSES))
        stack.enter_context(_later(_METHODS, method=_method))
        if "torch" not in sys.modules:
            stack.enter_context(_later("tvm_ffi._optional_torch_c_dlpack"))
        stack.enter_context(_without_collector())
        yield


with _lightly():
    import_without_torch("tvm_ffi")
import tvm_ffi as tvm_ffi  # noqa: E402 - after the import that leaves these modules out
