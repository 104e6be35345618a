"""Programs as files without a linker: the object files that LLVM writes, in a tar archive, linked when they are loaded.

LLVM's JIT linker (the package ``apache-tvm-ffi-orcjit``) does what the C++ compiler's linker and the dynamic loader
do for a shared library. It needs less time than a linker takes to start. So files that a compile writes and reads
itself are of this kind, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_ELF = b"\x7fELF"


def is_linked(path: Path) -> bool:
    """Whether the file at ``path`` is a shared library."""
    with path.open("rb") as file:
        return file.read(len(_ELF)) == _ELF


def read(path: Path) -> Any:
    """The module in a file of object files; raises what the linker raises."""
    import tarfile  # only such a file needs this linker of 16 MB

    import tvm_ffi_orcjit

    with tarfile.open(path, "r:") as archive:  # anything after its end, such as a seal, is not read
        files = [archive.extractfile(member) for member in archive]
        objects = [file.read() for file in files if file is not None]
    return tvm_ffi_orcjit.default_session().load_module(objects)
