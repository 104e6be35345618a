"""Programs as files without a linker: the object files that LLVM writes, in a tar archive, linked when they are loaded.

LLVM's JIT linker (the package ``apache-tvm-ffi-orcjit``) does what the C++ compiler's linker and the dynamic loader do
for a shared library, and takes less time than a linker takes to start. So what is written and read by the same compile
is such a file as well.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.support import cc

from .imports_object import packed_imports

_ELF = b"\x7fELF"


def write(module: Any, path: Path) -> None:
    """Write a module of TVM and what it imports as object files; raises RuntimeError or OSError.

    Parts that are C source need a compiler all the same, and make a shared library.
    """
    _exported(module, path, _archive)


def write_linked(module: Any, path: Path) -> None:
    """Write a shared library where there is a C++ compiler, and object files where there is none."""
    if cc.get_cc() is None:
        write(module, path)
    else:
        _exported(module, path, cc.create_shared)


def is_linked(path: Path) -> bool:
    """Whether the file at ``path`` is a shared library."""
    with path.open("rb") as file:
        return file.read(len(_ELF)) == _ELF


def read(path: Path) -> Any:
    """The module in a file of object files; raises what the linker raises."""
    import tvm_ffi_orcjit  # 16 MB, which only such a file needs

    with tarfile.open(path, "r:") as archive:  # what stands behind its end, such as a seal, is not read
        files = [archive.extractfile(member) for member in archive]
        objects = [file.read() for file in files if file is not None]
    return tvm_ffi_orcjit.default_session().load_module(objects)


def _exported(executable: Any, path: Path, link: Callable[..., None]) -> None:
    module = executable.mod if isinstance(executable, tvm.runtime.Executable) else executable
    module.export_library(str(path), fcompile=link, fpack_imports=packed_imports)


def _archive(path: str, files: Sequence[str], **_options: Any) -> None:
    """What ``export_library`` calls in place of the linker."""
    if any(Path(name).suffix != ".o" for name in files):
        if cc.get_cc() is None:
            raise RuntimeError(
                "a part of it is C source, which needs a C++ compiler: install one, such as g++"
            )
        cc.create_shared(path, list(files))
        return
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for number, name in enumerate(files):
            content = Path(name).read_bytes()
            member = tarfile.TarInfo(
                f"{number}.o"
            )  # without times and owners: equal programs are equal files
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
