"""The native backends and the vendor libraries that they use: the wheels, and the libraries in them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
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

    def path(self) -> Path | None:
        """The path of the library in the running environment, or None when it is not installed."""
        try:
            files = distribution(self.distribution).files or []
        except PackageNotFoundError:
            return None
        for file in files:
            if file.as_posix().endswith(self.file):
                path = Path(str(file.locate())).resolve()
                return path if path.exists() else None
        return None

    def version(self) -> str | None:
        """The version of the wheel, or None when it is not installed."""
        try:
            return distribution(self.distribution).version
        except PackageNotFoundError:
            return None


VENDORS: dict[str, Vendor | None] = {
    "onednn": Vendor("onednn-cpu-gomp", "libdnnl.so.3"),
    # With more than one thread it would start its own pool; here all parallel work runs on the one pool.
    "openblas": Vendor("scipy-openblas32", "lib/libscipy_openblas.so", {"OPENBLAS_NUM_THREADS": "1"}),
    # Our own kernels use no vendor library.
    "kernels": None,
}
