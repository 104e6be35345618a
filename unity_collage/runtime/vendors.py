"""The native backends and the vendor libraries that they use: the wheels, and the libraries in them."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

_METADATA = ".dist-info"
"""How the names of folders with the metadata of wheels end."""


@dataclass(frozen=True, slots=True)
class Vendor:
    """A library that is in a wheel of its own."""

    distribution: str
    """Name of the wheel."""

    file: str
    """The end of the library's path among the files of the wheel; ``*`` stands for a version."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that are set while the library is loaded, unless the user has set them."""

    system_library: str | None = None
    """A library that it needs and that a system may lack; ``libcollage_openmp.so`` then stands in for it."""

    opened: tuple[str, ...] = ()
    """Libraries of the wheel, as ``file``, that the library itself opens when it needs them, from its own folder."""

    processors: tuple[str, ...] = ()
    """The processors that the wheel exists for, as Linux names them; empty: all that this package runs on."""

    part: str | None = None
    """The library of this package that has the backend: ``cuda`` for ``libcollage_cuda.so``; None: that of its name."""

    by_python: bool = False
    """Whether functions of Python call it, so that nothing of it is loaded before and no bundle can have it."""

    @property
    def soname(self) -> str:
        """The name of the library, by which the loader finds one that is loaded or installed in the system."""
        return Path(self.file).name

    def path(self) -> Path | None:
        """The path of the library in the running environment, or None when it is not installed."""
        return _path(self.distribution, self.file)

    def why_not_installed(self) -> str | None:
        """Why the library is not installed, and what to do; None if it is."""
        if self.path() is not None:
            return None
        return self.why_no_wheel() or f"{self.file} is missing: pip install {self.distribution}"

    def why_no_wheel(self) -> str | None:
        """Why there is no wheel for this processor, or None if there is one."""
        machine = os.uname().machine
        if not self.processors or machine in self.processors:
            return None
        return f"{self.distribution} is for {' and '.join(self.processors)} only, and this processor is {machine}"

    def opened_paths(self) -> list[Path]:
        """The paths of the installed libraries that it opens itself."""
        return [path for end in self.opened if (path := _path(self.distribution, end)) is not None]

    def version(self) -> str | None:
        """The version of the wheel, or None when it is not installed."""
        from importlib.metadata import PackageNotFoundError, distribution

        try:
            return distribution(self.distribution).version
        except PackageNotFoundError:
            return None


@cache
def _path(wheel: str, end: str) -> Path | None:
    """The file of an installed wheel with a path that ends like this, or None; wheels list thousands of files.

    Lists of files are read here first: ``importlib.metadata`` takes longer to import than a small program to load.
    """
    for folder in _metadata_of(wheel):
        with suppress(OSError):
            record = (folder / "RECORD").read_text(encoding="utf-8")
            listed = (line.partition(",")[0] for line in record.splitlines())
            path = next(
                ((folder.parent / file).resolve() for file in listed if fnmatch(file, f"*{end}")), None
            )
            if path is not None and path.exists():
                return path
    return _path_by_metadata(wheel, end)


@cache
def wheel_version(wheel: str) -> str | None:
    """The version of an installed wheel by the name of its folder, or None.

    ``importlib.metadata`` takes longer to import than a small program to load.
    """
    found = next(_metadata_of(wheel), None)
    return None if found is None else found.name.removesuffix(_METADATA).partition("-")[2]


def _metadata_of(wheel: str) -> Iterator[Path]:
    """The folders of metadata of an installed wheel, in the order of Python's path."""
    prefix = f"{wheel.replace('-', '_')}-"
    for folder in sys.path:
        for name in _listed(folder):
            if name.lower().startswith(prefix):  # older tools kept capitals, as in MNN-2.9
                yield Path(folder, name)


@cache
def _listed(folder: str) -> list[str]:
    """The names of the folders of metadata in ``folder``. Patterns of ``pathlib`` take ten times as long."""
    try:
        return [name for name in os.listdir(folder or ".") if name.endswith(_METADATA)]  # noqa: PTH208
    except OSError:
        return []


def _path_by_metadata(wheel: str, end: str) -> Path | None:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        files = distribution(wheel).files or []
    except PackageNotFoundError:
        return None
    for file in files:
        if fnmatch(file.as_posix(), f"*{end}"):
            path = Path(str(file.locate())).resolve()
            return path if path.exists() else None
    return None


def part_of(backend: str) -> str:
    """The library of this package that has a backend: the ``NAME`` of ``libcollage_NAME.so``."""
    vendor = VENDORS.get(backend)
    return backend if vendor is None or vendor.part is None else vendor.part


VENDORS: dict[str, Vendor | None] = {
    "onednn": Vendor(
        "onednn-cpu-gomp", "libdnnl.so.3", system_library="libgomp.so.1", processors=("x86_64",)
    ),
    # With more than one thread it would start its own pool; here all parallel work runs on the one pool.
    "openblas": Vendor("scipy-openblas32", "lib/libscipy_openblas.so", {"OPENBLAS_NUM_THREADS": "1"}),
    # Our own kernels use no vendor library.
    "kernels": None,
    # In the order in which cuDNN needs them: it calls cuBLAS.
    "cublas": Vendor("nvidia-cublas", "lib/libcublasLt.so.13", part="cuda"),
    "cudnn": Vendor("nvidia-cudnn-cu13", "lib/libcudnn.so.9", part="cuda"),
    # Inference runtimes, which have thread pools of their own.
    "onnxruntime": Vendor("onnxruntime", "capi/libonnxruntime.so.*", part="sessions"),
    "openvino": Vendor(
        "openvino",
        "libs/libopenvino_c.so.*",
        opened=("libs/libopenvino_intel_cpu_plugin.so", "libs/libopenvino_onnx_frontend.so.*"),
        part="sessions",
    ),
    "mnn": Vendor("mnn", "_mnncengine.*.so", part="sessions", by_python=True),
}
