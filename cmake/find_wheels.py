"""Print where the Python packages that the build needs keep their headers and libraries.

CMake calls this with the interpreter that runs the build, so that with build isolation the answer is the
isolated environment. The argument is the processor to build for. One ``NAME=path`` a line; a missing package is an
error that names it. oneDNN has wheels for x86-64 only, so it is not looked for elsewhere.
"""

import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

# CMake variable, distribution, file to look for, how many parents up the wanted path is.
WANTED = (
    ("TVM_FFI_INCLUDE", "apache-tvm-ffi", "include/tvm/ffi/c_api.h", 3),
    ("DLPACK_INCLUDE", "apache-tvm-ffi", "include/dlpack/dlpack.h", 2),
    ("TVM_FFI_LIBRARY", "apache-tvm-ffi", "lib/libtvm_ffi.so", 0),
    ("ONEDNN_INCLUDE", "onednn-devel-cpu-gomp", "include/dnnl.h", 1),
    ("ONEDNN_LIBRARY", "onednn-cpu-gomp", "libdnnl.so.3", 0),
    ("OPENBLAS_INCLUDE", "scipy-openblas32", "include/cblas.h", 1),
    ("OPENBLAS_LIBRARY", "scipy-openblas32", "lib/libscipy_openblas.so", 0),
)


def locate(distribution: str, suffix: str, parents: int) -> Path:
    """The path of the one installed file of ``distribution`` that ends in ``suffix``, or some parent of it."""
    try:
        listed = files(distribution) or []
    except PackageNotFoundError:
        sys.exit(f"{distribution} is not installed in the environment that builds the package")
    for file in listed:
        if file.as_posix().endswith(suffix):
            path = Path(str(file.locate())).resolve()
            return path.parents[parents - 1] if parents else path
    sys.exit(f"{distribution} is installed but has no file that ends in {suffix}")


if __name__ == "__main__":
    has_onednn = sys.argv[1] in ("x86_64", "AMD64")
    for name, distribution, suffix, parents in WANTED:
        if not has_onednn and name.startswith("ONEDNN"):
            continue
        print(f"{name}={locate(distribution, suffix, parents)}")
