"""The native backends and the vendor libraries that they use: the wheels, and the libraries in them."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Vendor:
    """A library that is in a wheel of its own."""

    distribution: str
    """Name of the wheel."""

    file: str
    """The end of the library's path among the files of the wheel."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that are set while the library is loaded, unless the user has set them."""

    system_library: str | None = None
    """A library that it needs and that a system may lack; ``libcollage_openmp.so`` then stands in for it."""

    def path(self) -> Path | None:
        """The path of the library in the running environment, or None when it is not installed."""
        return _path(self.distribution, self.file)

    def version(self) -> str | None:
        """The version of the wheel, or None when it is not installed."""
        from importlib.metadata import PackageNotFoundError, distribution

        try:
            return distribution(self.distribution).version
        except PackageNotFoundError:
            return None


@cache
def _path(wheel: str, end: str) -> Path | None:
    """The file of an installed wheel whose path ends so, or None; wheels list thousands of files.

    Lists of files are read here first: ``importlib.metadata`` takes longer to import than a small program to load.
    """
    for folder in map(Path, sys.path):
        for record in folder.glob(f"{wheel.replace('-', '_')}-*.dist-info/RECORD"):
            listed = (line.partition(",")[0] for line in record.read_text(encoding="utf-8").splitlines())
            path = next(((folder / file).resolve() for file in listed if file.endswith(end)), None)
            if path is not None and path.exists():
                return path
    return _path_by_metadata(wheel, end)


@cache
def wheel_version(wheel: str) -> str | None:
    """The version of an installed wheel by the name of its folder, or None.

    ``importlib.metadata`` takes longer to import than a small program to load.
    """
    prefix, suffix = f"{wheel.replace('-', '_')}-", ".dist-info"
    for folder in map(Path, sys.path):
        for found in folder.glob(f"{prefix}*{suffix}"):
            return found.name.removeprefix(prefix).removesuffix(suffix)
    return None


def _path_by_metadata(wheel: str, end: str) -> Path | None:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        files = distribution(wheel).files or []
    except PackageNotFoundError:
        return None
    for file in files:
        if file.as_posix().endswith(end):
            path = Path(str(file.locate())).resolve()
            return path if path.exists() else None
    return None


VENDORS: dict[str, Vendor | None] = {
    "onednn": Vendor("onednn-cpu-gomp", "libdnnl.so.3", system_library="libgomp.so.1"),
    # With more than one thread it would start its own pool; here all parallel work runs on the one pool.
    "openblas": Vendor("scipy-openblas32", "lib/libscipy_openblas.so", {"OPENBLAS_NUM_THREADS": "1"}),
    # Our own kernels use no vendor library.
    "kernels": None,
}
