"""CUDA: why it is unavailable, how its libraries are loaded, and the functions of the CUDA runtime that Python calls.

Programs run on the first device. Libraries are loaded on first use.
"""

import ctypes
from contextlib import suppress
from functools import cache
from pathlib import Path

from unity_collage.runtime.libraries import claim_parallel_loops, load_tvm_runtime, own_library, tvm_runtime
from unity_collage.runtime.vendors import VENDORS, Vendor

DEVICE = (2, 0)
"""The first CUDA device as DLPack numbers it."""

_INSTALL = "pip install 'unity_collage[cuda]'"
_RUNTIME = Vendor("nvidia-cuda-runtime", "lib/libcudart.so.13", part="cuda")
_COMPILER = Vendor("nvidia-cuda-nvrtc", "lib/libnvrtc.so.13", part="cuda")
_BUILTINS = "libnvrtc-builtins.so.*"
"""A library next to the compiler, which opens it only by name."""

_OWN = "libcollage_cuda.so is missing: the package was installed without its native part for CUDA"
_COPY_OF_ANY_KIND, _CAPTURING, _WITHOUT_TIMES = 4, 1, 2
"""``cudaMemcpyDefault``, ``cudaStreamCaptureStatusActive`` and ``cudaEventDisableTiming``."""
_MAJOR, _MINOR = 75, 76
"""``cudaDevAttrComputeCapabilityMajor`` and ``Minor``."""

_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_ARGUMENTS = {
    "cudaDeviceGetAttribute": (_POINTER, _INT, _INT),
    "cudaDeviceSynchronize": (),
    "cudaEventCreateWithFlags": (_POINTER, ctypes.c_uint),
    "cudaEventDestroy": (_POINTER,),
    "cudaEventRecord": (_POINTER, _POINTER),
    "cudaGetDevice": (_POINTER,),
    "cudaGetDeviceCount": (_POINTER,),
    "cudaGetLastError": (),
    "cudaMemcpy": (_POINTER, _POINTER, _SIZE, _INT),
    "cudaMemcpyAsync": (_POINTER, _POINTER, _SIZE, _INT, _POINTER),
    "cudaMemGetInfo": (_POINTER, _POINTER),
    "cudaStreamIsCapturing": (_POINTER, _POINTER),
    "cudaStreamSynchronize": (_POINTER,),
    "cudaStreamWaitEvent": (_POINTER, _POINTER, ctypes.c_uint),
}
"""The functions of the CUDA runtime that are called here. Each returns a status; streams and events are pointers."""


def why_unavailable() -> str | None:
    """Why no program can run on a CUDA device here, or None when one can.

    It loads the driver and the CUDA runtime, since only they know the devices.
    """
    return (
        _why_no_driver()
        or why_missing(_RUNTIME)
        or _why_no_device()
        or _why_no_tvm()
        or why_no_code_generator()
    )


def why_missing(vendor: Vendor) -> str | None:
    """Why a library of NVIDIA cannot be loaded, from its wheel or by its name, or None when it can."""
    if vendor.path() is not None or _loads(vendor.soname):
        return None
    return f"{vendor.soname} is missing: {_INSTALL}"


def why_no_code_generator() -> str | None:
    """Why no kernels for cuBLAS and cuDNN can be generated, or None when they can; that needs no device."""
    return None if own_library("cuda") is not None else _OWN


@cache
def load() -> None:
    """Load what a program on a CUDA device needs: NVIDIA's libraries, TVM's runtime for CUDA, and ours.

    NVIDIA's are loaded first and globally, since TVM's library, ours and cuDNN look for them by their names. Raises
    RuntimeError with the reason where CUDA is unavailable.
    """
    if reason := why_unavailable():
        raise RuntimeError(f"cannot load cuda: {reason}")
    _runtime()
    load_tvm_runtime()
    vendors = [vendor.path() for vendor in VENDORS.values() if vendor is not None and vendor.part == "cuda"]
    for path in (*_compiler(), *vendors, _tvm_runtime()):
        if path is not None:
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    claim_parallel_loops()
    load_code_generators()


def needed() -> list[Path]:
    """The libraries behind TVM's own runtime that every program on a device needs, in the order of loading."""
    found = [_RUNTIME.path(), *_compiler(), _tvm_runtime()]
    return [path for path in found if path is not None]


@cache
def load_code_generators() -> None:
    """Load our library alone: it opens those of NVIDIA when a kernel first runs.

    Raises RuntimeError where it is missing.
    """
    if reason := why_no_code_generator():
        raise RuntimeError(f"cannot load cuda: {reason}")
    ctypes.CDLL(str(own_library("cuda")))


def count() -> int:
    """The number of devices; raises RuntimeError if CUDA does not report it."""
    found = ctypes.c_int(0)
    _call("cudaGetDeviceCount", ctypes.byref(found))
    return found.value


@cache
def capability() -> str:
    """The compute capability of the first device, such as ``9.0``."""
    return f"{attribute(_MAJOR)}.{attribute(_MINOR)}"


def attribute(number: int) -> int:
    """An attribute of the first device, by its number in ``cudaDeviceAttr``; raises RuntimeError if CUDA does not
    report it.
    """
    found = ctypes.c_int(0)
    _call("cudaDeviceGetAttribute", ctypes.byref(found), number, DEVICE[1])
    return found.value


@cache
def name() -> str:
    """The name of the first device, such as ``NVIDIA H100 80GB HBM3``; empty if the driver does not report it."""
    capability()  # starts the driver
    text = ctypes.create_string_buffer(256)
    status = ctypes.CDLL("libcuda.so.1").cuDeviceGetName(text, len(text), DEVICE[1])
    return "" if status else text.value.decode(errors="replace")


def current_device() -> int:
    """The number of the device that the calling thread uses."""
    found = ctypes.c_int(0)
    _call("cudaGetDevice", ctypes.byref(found))
    return found.value


def free_memory() -> int:
    """How many bytes of the current device are free."""
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    _call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    return free.value


def copy(target: int, source: int, nbytes: int, stream: int) -> None:
    """Copy bytes between addresses of the host or a device, as the next work of ``stream``."""
    if nbytes:
        _call("cudaMemcpyAsync", target, source, nbytes, _COPY_OF_ANY_KIND, stream)


def copy_to_host(target: int, source: int, nbytes: int) -> None:
    """Copy bytes from the device when all work that was given to it is done."""
    _call("cudaDeviceSynchronize")
    if nbytes:
        _call("cudaMemcpy", target, source, nbytes, _COPY_OF_ANY_KIND)


def synchronize(stream: int) -> None:
    """Wait until the work of ``stream`` is done."""
    _call("cudaStreamSynchronize", stream)


def synchronize_device() -> None:
    """Wait until the work of all streams of the current device is done."""
    _call("cudaDeviceSynchronize")


def let_wait(stream: int, other: int) -> None:
    """Let later work of ``stream`` wait for the work that ``other`` has now; the host does not wait."""
    event = ctypes.c_void_p()
    _call("cudaEventCreateWithFlags", ctypes.byref(event), _WITHOUT_TIMES)
    try:
        _call("cudaEventRecord", event, other)
        _call("cudaStreamWaitEvent", stream, event, 0)
    finally:
        _call("cudaEventDestroy", event)  # CUDA keeps it until it is reached


def is_captured(stream: int) -> bool:
    """Whether work given to ``stream`` becomes part of a graph."""
    status = ctypes.c_int(0)
    _call("cudaStreamIsCapturing", stream, ctypes.byref(status))
    return status.value == _CAPTURING


def _why_no_driver() -> str | None:
    if _loads("libcuda.so.1"):
        return None
    return "libcuda.so.1 is missing: install NVIDIA's driver, of version 580 or newer"


def _why_no_device() -> str | None:
    try:
        found = count()
    except RuntimeError as error:
        return f"{error}: see nvidia-smi for the driver and the devices, and CUDA_VISIBLE_DEVICES"
    return None if found else "CUDA finds no device: see nvidia-smi and CUDA_VISIBLE_DEVICES"


def _why_no_tvm() -> str | None:
    path = _tvm_runtime()
    if path is not None and path.exists():
        return None
    return "libtvm_runtime_cuda.so is missing: pip install apache-tvm for Linux, whose wheel has it"


def _tvm_runtime() -> Path | None:
    """The path of TVM's runtime for CUDA, next to its runtime for all devices; None if TVM is not installed."""
    path = tvm_runtime()
    return None if path is None else path.with_name("libtvm_runtime_cuda.so")


def _compiler() -> list[Path]:
    """NVRTC, with which cuDNN makes kernels, after its built-in functions; empty if it is not installed."""
    path = _COMPILER.path()
    return [] if path is None else [*sorted(path.parent.glob(_BUILTINS)), path]


def _loads(soname: str) -> bool:
    with suppress(OSError):
        ctypes.CDLL(soname, ctypes.RTLD_GLOBAL)
        return True
    return False


@cache
def _runtime() -> ctypes.CDLL:
    """The CUDA runtime, from its wheel or by its name."""
    library = ctypes.CDLL(str(_RUNTIME.path() or _RUNTIME.soname), ctypes.RTLD_GLOBAL)
    for function, arguments in _ARGUMENTS.items():
        getattr(library, function).argtypes = arguments
    for function in ("cudaGetErrorName", "cudaGetErrorString"):
        getattr(library, function).restype = ctypes.c_char_p
    return library


def _call(function: str, *arguments: object) -> None:
    """Call a function of the CUDA runtime; raises RuntimeError with its name and CUDA's own text."""
    library = _runtime()
    status = getattr(library, function)(*arguments)
    if status:
        library.cudaGetLastError()  # clears the error, so that another call does not report it again
        kind, text = library.cudaGetErrorName(status).decode(), library.cudaGetErrorString(status).decode()
        raise RuntimeError(f"{function} failed: {kind}: {text}")
