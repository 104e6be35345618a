"""Finds and loads the native libraries, on demand and only once."""

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from unity_collage import runtime
from unity_collage.runtime.vendors import VENDORS, Vendor, part_of

from ..ffi import tvm_ffi

_CUDA, _SESSIONS = "cuda", "sessions"
"""The libraries of this package for the backends of CUDA, and for calls of inference runtimes."""
_MAKER = "unity_collage.torch_kernel"
"""The function that native modules of the kind ``collage.torch`` call."""
_OPENER = "unity_collage.mnn_session"
"""The function that native modules of the kind ``collage.mnn`` call."""


def why_unavailable(name: str) -> str | None:
    """Why backend ``name`` cannot be loaded here, or None when it can; loads nothing of the backend.

    Backends for CUDA load the driver and the CUDA runtime, to look for devices.
    """
    if name not in VENDORS:
        return f"there is no native backend {name!r}; there are {', '.join(VENDORS)}"
    vendor = VENDORS[name]
    if vendor is not None and vendor.part == _CUDA:
        return _cuda().why_unavailable() or _cuda().why_missing(vendor)
    if vendor is not None and (reason := vendor.why_not_installed()):
        return reason
    for part in ("runtime", part_of(name)):
        if own_library(part) is None:
            return _no_native_part(part)
    return None


def library_version(name: str) -> str | None:
    """The version of the wheel that backend ``name`` uses, or None when it is not installed; loads nothing."""
    vendor = VENDORS.get(name)
    return vendor.version() if vendor else None


def load(name: str) -> None:
    """Load backend ``name``, which registers its functions and the loaders of its saved modules.

    Call it before a library of TVM is loaded: from then on parallel loops of TVM run on the one pool. Raises
    RuntimeError with the reason when the backend is unavailable.
    """
    if reason := why_unavailable(name):
        raise RuntimeError(f"cannot load {name}: {reason}")
    claim_parallel_loops()
    _load_backend(name)


def load_code_generator(name: str) -> None:
    """Load the library that makes modules of backend ``name`` from programs.

    Most backends are loaded for that. Those for CUDA need no device and no library of NVIDIA, only our own; nor does
    ``"sessions"``, our library for inference runtimes, need one of those. Raises RuntimeError with the reason when it
    is missing.
    """
    if part_of(name) == _CUDA:
        claim_parallel_loops()
        _cuda().load_code_generators()
    elif name == _SESSIONS:
        _load_own(name)
    else:
        load(name)


def describe(name: str) -> str:
    """Load backend ``name`` and return the library's own version and the instruction set that it uses."""
    load(name)
    return _ask(name, "describe")


def version(name: str) -> str:
    """Load ``"runtime"`` or the library of a backend, and return the version that its sources declare.

    The version is raised when the library computes or performs differently. So a measured cost is valid for one
    version. Backends may share a library: ``"cuda"`` is that of cuBLAS and cuDNN.
    """
    return _ask(part_of(name), "version")


def source_digest(name: str) -> str:
    """Load ``"runtime"`` or the library of a backend, and return the digest of the sources that it was built from."""
    return _ask(part_of(name), "source_digest")


def ffi_version() -> str:
    """The version of TVM's FFI, such as ``0.1.14``."""
    return _ask("runtime", "ffi_version")


def _ask(name: str, question: str) -> str:
    if name == "runtime":
        load_base()
    else:
        load_code_generator(name)
    return str(tvm_ffi.get_global_func(f"collage.{name}.{question}")())


@cache
def load_base() -> None:
    """Load the thread pool, the timing loop, and the modules of kernels that PyTorch computes."""
    path = own_library("runtime")
    if path is None:
        raise RuntimeError(_no_native_part("runtime"))
    ctypes.CDLL(str(path))
    tvm_ffi.register_global_func(_MAKER, _torch_kernel, override=True)


def _torch_kernel(*given: Any) -> Any:
    """What :func:`.torch_kernels.made` returns; a process without such kernels starts faster without that file."""
    from unity_collage.runtime import torch_kernels

    return torch_kernels.made(*given)


def _mnn_session(*given: Any) -> Any:
    """What :func:`.mnn_sessions.opened` returns; MNN is imported with the first model that is opened."""
    from unity_collage.runtime import mnn_sessions

    return mnn_sessions.opened(*given)


@cache
def load_tvm_runtime() -> None:
    """Load TVM's runtime, which has the virtual machine, without TVM's compiler; an import of TVM has loaded it.

    Raises RuntimeError when TVM is not installed.
    """
    if "tvm" in sys.modules:
        return
    path = tvm_runtime()
    if path is None:
        raise RuntimeError("libtvm_runtime.so is missing: pip install apache-tvm")
    ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)  # as TVM loads it: its other libraries find its symbols
    claim_parallel_loops()  # it claims them for its own pool


def claim_parallel_loops() -> None:
    """Let the parallel loops of every TVM library that is loaded later run on the one pool.

    TVM's runtime claims them for its own pool when it is imported, and the last claim wins.
    """
    load_base()
    tvm_ffi.get_global_func("collage.runtime.claim_parallel_loops")()


@cache
def _load_backend(name: str) -> None:
    if part_of(name) == _CUDA:
        _cuda().load()
        return
    # The vendor library is loaded first, so that the loader finds it by name when it loads ours.
    vendor = VENDORS[name]
    if vendor is not None and vendor.by_python:
        tvm_ffi.register_global_func(_OPENER, _mnn_session, override=True)
    elif vendor is not None:
        with _environment(vendor.environment):
            for path in _vendor_libraries(vendor):
                ctypes.CDLL(str(path))
    _load_own(part_of(name))


def _load_own(part: str) -> None:
    """Load a library of this package behind the pool; raises RuntimeError where it is missing."""
    load_base()
    path = own_library(part)
    if path is None:
        raise RuntimeError(_no_native_part(part))
    ctypes.CDLL(str(path))


def _no_native_part(part: str) -> str:
    return f"libcollage_{part}.so is missing: the package was installed without its native part"


def _vendor_libraries(vendor: Vendor) -> list[Path]:
    """The library of a vendor, loaded after the stand-in for a library that the system lacks."""
    needed = [_stand_in(vendor.system_library) if vendor.system_library else None, vendor.path()]
    return [path for path in needed if path is not None]


@cache
def _stand_in(system_library: str) -> Path | None:
    """The library that is loaded in place of this one of the system, or None where the system has it.

    Minimal systems have no libgomp.so.1. oneDNN cannot be mapped without it, and runs on our pool instead of it. A
    process has one library of a name: if PyTorch brings this name, its library is used for both.
    """
    try:
        ctypes.CDLL(system_library)
    except OSError:
        return _library_of("torch", system_library) or own_library("openmp")
    return None


def tvm_runtime() -> Path | None:
    """The library of TVM's runtime, or None when TVM is not installed."""
    name = "libtvm_runtime.so"
    chosen = os.environ.get("TVM_LIBRARY_PATH")  # as TVM itself reads it
    if chosen and (path := Path(chosen) / name).exists():
        return path
    return _library_of("tvm", name)


def _library_of(package: str, file: str) -> Path | None:
    """A library in the folder ``lib`` of a package, or None; imports nothing."""
    found = find_spec(package)
    folders = [Path(folder) / "lib" for folder in (found and found.submodule_search_locations) or ()]
    return next((path for folder in folders if (path := folder / file).exists()), None)


def needed_by(backends: Sequence[str]) -> list[Path]:
    """The libraries that a program with kernels of these backends needs, in the order in which they are loaded.

    It is for loaders in other languages: :func:`load` does this for Python. Raises RuntimeError where one is missing.
    """
    for name in backends:
        if reason := why_unavailable(name):
            raise RuntimeError(f"cannot load {name}: {reason}")
    vendors = [path for name in backends if (vendor := VENDORS[name]) for path in _vendor_libraries(vendor)]
    parts = dict.fromkeys(map(part_of, backends))
    of_cuda = _cuda().needed() if _CUDA in parts else []
    found = [tvm_runtime(), own_library("runtime"), *of_cuda, *vendors, *map(own_library, parts)]
    return [path for path in found if path is not None]


@cache
def own_library(part: str) -> Path | None:
    """A library of this package, or None.

    It is next to these sources after an editable install. It is in the installed package when a checkout of the sources
    comes earlier on the path.
    """
    folders = map(Path, chain(runtime.__path__, _installed()))
    candidates = (folder / "lib" / f"libcollage_{part}.so" for folder in folders)
    return next((path for path in candidates if path.exists()), None)


def own_file(path: str) -> Path:
    """A file or folder of this package, such as ``include``; raises RuntimeError if there is none."""
    found = next((file for folder in runtime.__path__ if (file := Path(folder) / path).exists()), None)
    if found is None:
        raise RuntimeError(f"{path} is missing: the package was installed without it")
    return found


def cmake_folder() -> Path:
    """Where ``find_package(unity_collage_runtime)`` looks: the value of ``unity_collage_runtime_DIR`` for CMake.

    It is for the installed package; the folder of a bundle is one for that bundle. Raises RuntimeError in a checkout,
    where the libraries are elsewhere.
    """
    folder = own_file("cmake")
    if not (folder.parent / "lib").is_dir():
        raise RuntimeError(
            "the libraries of a checkout are elsewhere: save a program with bundle=True, and give its folder"
        )
    return folder


def _installed() -> Iterator[str]:
    """The folder of this package as it was installed; a generator, since it takes time to find."""
    from importlib.metadata import PackageNotFoundError, distribution

    with suppress(PackageNotFoundError):
        yield str(distribution("unity_collage").locate_file("unity_collage/runtime"))


def _cuda() -> ModuleType:
    """The module for CUDA, imported late since it uses this one."""
    from unity_collage.runtime import cuda

    return cuda


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set the variables that are not set yet inside the ``with`` block, so that child processes do not inherit them."""
    added = [key for key in values if key not in os.environ]
    os.environ.update({key: values[key] for key in added})
    try:
        yield
    finally:
        for key in added:
            del os.environ[key]
