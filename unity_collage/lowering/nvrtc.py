"""Compiles TVM's CUDA sources with NVRTC, from NVIDIA's wheels: no CUDA toolkit is needed.

TVM's own callback reads the headers of a toolkit, and compiles with ``--use_fast_math``: denormal numbers become zero,
and quotients and roots are approximate. Ours rounds as IEEE 754 says, except that products and sums are fused.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

import tvm
from tvm.target import Target

from ..runtime import cuda
from ..runtime.vendors import Vendor

NVRTC = Vendor("nvidia-cuda-nvrtc", "lib/libnvrtc.so.13")
"""NVIDIA's compiler. Next to it are its built-in functions, which it opens by name only."""
HEADERS = (
    Vendor("nvidia-cuda-runtime", "include/cuda_fp16.h"),
    Vendor("nvidia-cuda-cccl", "include/cccl/nv/target"),
    Vendor("nvidia-cuda-crt", "include/crt/mma.h"),
)
"""One header of each wheel with headers that the sources include."""

_CALLBACK = "tvm_callback_cuda_compile"
"""The function that TVM calls with the source of a module, for its binary."""

_OPTIONS = (
    "--std=c++17",
    "-default-device",
    "--device-int128",
    "--disable-warnings",
    "--define-macro=INFINITY=__int_as_float(0x7f800000)",  # from <math.h>, which NVRTC lacks
    "--define-macro=inff=INFINITY",  # how TVM writes infinity in bfloat16
)

NAN_KEPT = """
template <typename A, typename B>
static __forceinline__ __device__ auto collage_max(A a, B b) -> decltype(true ? A() : B()) {
  return a != a || a > b ? a : b;
}
template <typename A, typename B>
static __forceinline__ __device__ auto collage_min(A a, B b) -> decltype(true ? A() : B()) {
  return a != a || a < b ? a : b;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
static __forceinline__ __device__ float collage_max(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
static __forceinline__ __device__ float collage_min(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
#ifdef __CUDA_FP16_H__
static __forceinline__ __device__ half collage_max(half a, half b) { return __hmax_nan(a, b); }
static __forceinline__ __device__ half collage_min(half a, half b) { return __hmin_nan(a, b); }
#endif
#endif
#define max(a, b) collage_max(a, b)
#define min(a, b) collage_min(a, b)
"""
"""Source before the kernels: the maximum and the minimum of two numbers are NaN if one of them is, as in numpy and
ONNX. CUDA's own functions return the other number, so ReLU and max pooling would lose NaN.
"""

_KERNEL = 'extern "C" __global__'

_SMALL_HEADERS = {
    b"cuda/std/cstdint": b"""#pragma once
namespace cuda { namespace std {
using int8_t = signed char; using int16_t = short; using int32_t = int; using int64_t = long long;
using uint8_t = unsigned char; using uint16_t = unsigned short;
using uint32_t = unsigned int; using uint64_t = unsigned long long;
} }
""",
    b"cuda/std/type_traits": b"""#pragma once
namespace cuda { namespace std {
template <class A, class B> struct is_same { static constexpr bool value = false; };
template <class A> struct is_same<A, A> { static constexpr bool value = true; };
template <class A, class B> constexpr bool is_same_v = is_same<A, B>::value;
template <class A> struct is_integral;
template <class A> struct is_signed;
template <class A> struct is_unsigned;
template <class A> struct is_floating_point;
template <bool, class A = void> struct enable_if;
template <bool, class A, class B> struct conditional;
} }
""",
}
"""The parts of two headers of CCCL that kernels need, by name. The headers take 0.6 seconds to read, a kernel 0.02."""


def why_unavailable() -> str | None:
    """Why NVRTC cannot be used here, or None when it can; loads nothing."""
    missing = [vendor for vendor in (NVRTC, *HEADERS) if vendor.path() is None]
    if not missing:
        return None
    names = " ".join(vendor.distribution for vendor in missing)
    return f"{missing[0].file} is missing: pip install {names}"


def register() -> None:
    """Let TVM compile CUDA sources with :func:`compiled` in this process, if NVRTC is installed."""
    if why_unavailable() is None:
        tvm.register_global_func(_CALLBACK, _compiled_for_target, override=True)


def compiled(source: str, arch: str) -> bytes:
    """The cubin of ``source`` for ``arch``, such as ``sm_90``; raises RuntimeError with the compiler's log.

    Sources that need more than the small headers are compiled with those of the wheels.
    """
    kept = source.replace(_KERNEL, NAN_KEPT + _KERNEL, 1)
    try:
        return _cubin(kept.encode(), arch, _SMALL_HEADERS)
    except CompileError:
        return _cubin(kept.encode(), arch, {})


class CompileError(RuntimeError):
    """NVRTC does not compile a source; the text is its log."""


def _compiled_for_target(source: str) -> bytes:
    return compiled(source, _arch())


def _arch() -> str:
    """The architecture of the target in scope, or else that of the first GPU."""
    target = Target.current(allow_none=True)
    if target is not None and "arch" in target.attrs:
        return str(target.attrs["arch"])
    if reason := cuda.why_unavailable():
        raise RuntimeError(f"no architecture to compile CUDA for: give the target one, -arch=sm_90; {reason}")
    return f"sm_{cuda.capability().replace('.', '')}"


def _cubin(source: bytes, arch: str, headers: dict[bytes, bytes]) -> bytes:
    library = _library()
    program = ctypes.c_void_p()
    texts, names = _strings(list(headers.values())), _strings(list(headers))
    _check(
        library.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", len(headers), texts, names),
        "nvrtcCreateProgram",
    )
    try:
        options = [f"--gpu-architecture={arch}", *_OPTIONS]
        options += [f"--include-path={folder}" for folder in _include_folders()]
        status = library.nvrtcCompileProgram(program, len(options), _strings([o.encode() for o in options]))
        if status:
            log = _output(program, library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)
            raise CompileError(f"NVRTC: {_text(status)}\n{log.rstrip(bytes(1)).decode(errors='replace')}")
        return _output(program, library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _output(program: ctypes.c_void_p, size: Callable[..., int], read: Callable[..., int]) -> bytes:
    """The log or the binary that NVRTC keeps for a program."""
    count = ctypes.c_size_t()
    _check(size(program, ctypes.byref(count)), "the size of NVRTC's output")
    text = ctypes.create_string_buffer(count.value)
    _check(read(program, text), "NVRTC's output")
    return text.raw


def _strings(values: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(values))(*values)


def _check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"{what}: {_text(status)}")


def _text(status: int) -> str:
    return _library().nvrtcGetErrorString(status).decode()


def _include_folders() -> list[str]:
    """The folders of CUDA's own headers and of CCCL's."""
    runtime, cccl, crt = (vendor.path() for vendor in HEADERS)
    assert runtime is not None and cccl is not None and crt is not None
    folders = (runtime.parent, cccl.parent.parent, crt.parent.parent)
    return list(dict.fromkeys(map(str, folders)))


@cache
def _library() -> ctypes.CDLL:
    """NVRTC; raises RuntimeError where it is not installed."""
    if reason := why_unavailable():
        raise RuntimeError(f"cannot compile CUDA: {reason}")
    path = NVRTC.path()
    assert path is not None
    for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(builtins))
    library = ctypes.CDLL(str(path))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library
