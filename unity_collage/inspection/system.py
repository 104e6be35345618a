"""This machine and what is installed on it: the processor, thread pools, libraries, the C++ compiler, the GPU."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from shutil import which

from .. import __version__, runtime
from ..machine import device
from ..machine.caches import reported
from ..machine.environment import usable_cores
from ..machine.fingerprint import instructions, machine
from ..runtime import cuda
from ..runtime.libraries import own_library
from ..runtime.threads import cpu_quota
from ..runtime.vendors import VENDORS


@dataclass(frozen=True, slots=True)
class Processor:
    """The processor, and the cores and threads that this process may use."""

    name: str
    instruction_sets: tuple[str, ...]
    """The instruction sets that kernels are compiled for; without TVM, all that the system reports."""
    cores: int
    """The hardware threads of the machine."""
    usable_cores: int
    """The hardware threads that this process may use."""
    quota: float | None
    """How many processors its control groups allow, as a fraction; None: no limit."""
    threads: int | None
    """How many threads kernels use by default; None without the native libraries."""
    l2_bytes: int | None
    """The second-level caches of all threads' cores together."""
    l3_bytes: int | None
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Pools:
    """The thread pools of this process, with the libraries of all backends that can be loaded."""

    openmp: tuple[str, ...]
    """The OpenMP runtimes; there should be one at most."""
    conflict: str | None
    """Why pools compete for the cores, or None."""


@dataclass(frozen=True, slots=True)
class Library:
    """A package that this one can use."""

    name: str
    distribution: str
    version: str | None
    """None: it is not installed."""
    remedy: str
    """What it is for, and how to get it."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The C++ compiler with which TVM links programs."""

    compiler: str | None
    linker: str | None
    without: str
    """What works without a compiler, and how to get one; empty where there is one."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """The first CUDA device."""

    name: str | None
    driver: str
    why_not: str | None
    """Why no program can run on a GPU here, and what to do; None if one can."""


_LIBRARIES = (
    ("TVM", "apache-tvm", "compiles everything", ""),
    ("TVM FFI", "apache-tvm-ffi", "is needed", ""),
    ("object linker", "apache-tvm-ffi-orcjit", "links programs without a C++ compiler", ""),
    ("oneDNN", "onednn-cpu-gomp", "for the backend onednn", ""),
    ("OpenBLAS", "scipy-openblas32", "for the backend openblas", ""),
    ("ONNX", "onnx", "reads .onnx files", ""),
    ("ONNX Runtime", "onnxruntime", "for --verify and whole models", ""),
    ("OpenVINO", "openvino", "for whole models", ""),
    ("MNN", "mnn", "for whole models", ""),
    ("PyTorch", "torch", "for modules and .pt2 files", "torch"),
    ("xgboost", "xgboost-cpu", "for --tune", "tune"),
    ("tornado", "tornado", "for the servers of --rpc", "rpc"),
    ("psycopg", "psycopg", "for costs in PostgreSQL", "postgresql"),
    ("cuDNN", "nvidia-cudnn-cu13", "for --target cuda", "cuda"),
    ("cuBLAS", "nvidia-cublas", "for --target cuda", "cuda"),
)
"""Name, distribution, what it is for, and the extra of this package that brings it."""

_WITHOUT = (
    "programs are compiled, saved and loaded without one, as object code; with one, such as g++ "
    "(apt-get install g++), saved programs are shared libraries that C++ can load too"
)


def versions() -> dict[str, str]:
    """The versions of this package, of Python and of the system."""
    system = platform.platform(aliased=True, terse=True)
    with suppress(OSError):
        system = platform.freedesktop_os_release().get("PRETTY_NAME", system)
    return {
        "unity_collage": __version__,
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{system}, {platform.system()} {platform.release()} {platform.machine()}",
        "C library": " ".join(platform.libc_ver()).strip(),
    }


def processor(has_tvm: bool) -> Processor:
    """The processor of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    is_native = own_library("runtime") is not None
    caches = reported() if is_native else None
    name = machine()["machine"].partition(", ")[0] if is_native else platform.processor()
    return Processor(
        name,
        tuple(_instruction_sets(has_tvm)),
        os.cpu_count() or 1,
        len(usable_cores()),
        cpu_quota() if is_native else None,
        runtime.num_threads() if is_native else None,
        caches and caches.l2_bytes,
        caches and caches.l3_bytes,
        memory,
    )


def pools() -> Pools:
    """The thread pools of this process."""
    if own_library("runtime") is None:
        return Pools((), None)
    return Pools(tuple(runtime.openmp_runtimes()), runtime.why_pools_conflict())


def installed_libraries() -> tuple[Library, ...]:
    """The packages that matter, installed or not; none of them is imported."""
    pinned = _requirements()
    vendors = {vendor.distribution: vendor for vendor in VENDORS.values() if vendor is not None}

    def remedy(wheel: str, extra: str) -> str:
        vendor = vendors.get(wheel)
        command = f"pip install '{f'unity_collage[{extra}]' if extra else pinned.get(wheel, wheel)}'"
        return (vendor and vendor.why_no_wheel()) or command

    return tuple(
        Library(name, wheel, _version(wheel), f"{use}: {remedy(wheel, extra)}")
        for name, wheel, use, extra in _LIBRARIES
    )


def toolchain(has_tvm: bool) -> Toolchain:
    """The compiler that TVM would take, from ``CXX``, ``CC`` or the search path."""
    compiler = _compiler() if has_tvm else which("g++") or which("c++")
    linker = next(filter(None, map(which, ("ld", "ld.lld", "ld.gold"))), None)
    return Toolchain(compiler, linker, "" if compiler else _WITHOUT)


def gpu_state() -> Gpu:
    """The GPU of this machine, or why there is none."""
    if own_library("runtime") is None:
        return Gpu(None, "", "the native libraries of unity_collage are missing")
    if reason := cuda.why_unavailable():
        return Gpu(None, device.driver_version(), reason)
    try:
        return Gpu(str(device.device()), device.driver_version(), None)
    except RuntimeError as error:
        return Gpu(None, device.driver_version(), str(error))


def _compiler() -> str | None:
    from tvm.support import cc

    return cc.get_cc()


def _instruction_sets(has_tvm: bool) -> Iterator[str]:
    if not has_tvm:
        yield from instructions().split()
        return
    from ..calling.processor import instruction_sets
    from ..target import host_target

    yield from instruction_sets(host_target())


def _requirements() -> dict[str, str]:
    """What this package requires without extras, with the versions, by the names of distributions."""
    try:
        wanted = [
            text.partition(";")[0].strip()
            for text in requires("unity_collage") or ()
            if "extra ==" not in text
        ]
    except PackageNotFoundError:  # a checkout that is not installed
        return {}
    return {re.split(r"[^\w.-]", text, maxsplit=1)[0]: text for text in wanted}


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
