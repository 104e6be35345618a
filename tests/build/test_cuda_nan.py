"""Sources for CUDA keep NaN in minima and maxima."""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path

import pytest

from unity_collage.lowering import nvrtc

HOST = """
#define __device__
#define __forceinline__ inline
{text}
extern "C" float larger(float a, float b) {{ return max(a, b); }}
extern "C" float smaller(float a, float b) {{ return min(a, b); }}
extern "C" long long mixed(int a, long long b) {{ return max(a, b); }}
"""

KERNEL = """
{header}
extern "C" __global__ void relu({type}* x) {{ x[threadIdx.x] = max(x[threadIdx.x], {type}(0.0f)); }}
"""


@pytest.fixture(scope="module")
def on_host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The same text as functions of C++."""
    folder = tmp_path_factory.mktemp("nan")
    (source := folder / "nan.cc").write_text(HOST.format(text=nvrtc.NAN_KEPT))
    library = folder / "nan.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-O2", str(source), "-o", str(library)], check=True)
    found = ctypes.CDLL(str(library))
    for name in ("larger", "smaller"):
        function = getattr(found, name)
        function.restype, function.argtypes = ctypes.c_float, (ctypes.c_float, ctypes.c_float)
    found.mixed.restype, found.mixed.argtypes = ctypes.c_longlong, (ctypes.c_int, ctypes.c_longlong)
    return found


@pytest.mark.parametrize(("a", "b"), [(math.nan, 0.0), (0.0, math.nan), (math.nan, math.inf)])
def test_nan_wins(on_host: ctypes.CDLL, a: float, b: float) -> None:
    assert math.isnan(on_host.larger(a, b)) and math.isnan(on_host.smaller(a, b))


def test_numbers_are_compared(on_host: ctypes.CDLL) -> None:
    assert on_host.larger(1.0, 2.0) == 2.0 and on_host.smaller(1.0, 2.0) == 1.0
    assert on_host.larger(-math.inf, -1.0) == -1.0 and on_host.smaller(math.inf, 1.0) == 1.0
    assert on_host.mixed(3, 1 << 40) == 1 << 40


@pytest.mark.parametrize(
    ("header", "type_"), [("", "float"), ("", "double"), ("#include <cuda_fp16.h>", "half"), ("", "int")]
)
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_nvrtc_compiles_it(header: str, type_: str, arch: str) -> None:
    if reason := nvrtc.why_unavailable():
        pytest.skip(reason)
    binary = nvrtc.compiled(KERNEL.format(header=header, type=type_), arch)
    assert binary.startswith(b"\x7fELF")


def test_the_text_stands_before_the_first_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    monkeypatch.setattr(nvrtc, "_cubin", lambda source, _arch, _headers: seen.append(source) or b"")
    nvrtc.compiled(KERNEL.format(header="// first", type="float"), "sm_90")
    text = seen[0].decode()
    assert text.index("// first") < text.index("collage_max") < text.index("void relu")
    assert Path(nvrtc.__file__).read_text().count("max.NaN.f32") == 1
