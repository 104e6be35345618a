"""The native backends, the vendor libraries that they stand on, and where their wheels put those."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Vendor:
    """A library that comes as a wheel of its own."""

    distribution: str
    """Name of the wheel."""

    file: str
    """How the path of the library ends among the files of the wheel."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """What the library shall read from the environment while it is loaded, unless the user says otherwise."""

    def path(self) -> Path | None:
        """Where the library is in the running environment, or None when it is not installed."""
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
        """Version of the wheel, or None when it is not installed."""
        try:
            return distribution(self.distribution).version
        except PackageNotFoundError:
            return None


VENDORS: dict[str, Vendor | None] = {
    "onednn": Vendor("onednn-cpu-gomp", "libdnnl.so.3"),
    # One thread, or it starts a pool of its own: all parallel work here is on the one pool.
    "openblas": Vendor("scipy-openblas32", "lib/libscipy_openblas.so", {"OPENBLAS_NUM_THREADS": "1"}),
    # Our own kernels stand on nobody's library.
    "kernels": None,
}
