"""Reads programs that :meth:`Program.save` wrote."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import BinaryIO

from .. import runtime
from ..calling.memory import memory_of
from ..calling.signature import Signature
from ..errors import CollageError, first_line
from ..lowering import library_file, seal
from ..lowering.seal import facts_in
from ..scratch import Scratch
from .compiled import Program
from .facts import Facts, backends_in, device_in, why_not_here


def load(path: str | Path) -> Program:
    """The program that :meth:`Program.save` wrote; raises CollageError with the reason in one line.

    The file is verified first, and what the program needs of the processor and of the libraries: a library that was cut
    or changed would end the process, as would an instruction that the processor lacks. It is a warning if the program
    was measured for another number of threads than this process uses.
    """
    if not Path(path).is_file():
        raise CollageError(f"{path} is not a file")
    file = library_file.opened(path)
    try:
        return _loaded(file, path)
    except Exception:
        file.close()
        raise


def from_library(library: bytes) -> Program:
    """The program in the bytes of a saved file, for pickle."""
    with Scratch("program") as folder:
        path = Path(folder) / "program.so"
        path.write_bytes(library)
        return load(path)


def _loaded(file: BinaryIO, path: str | Path) -> Program:
    """The program in an open file that is verified; ``path`` names it in messages."""
    facts: Facts = facts_in(file)
    _refuse(path, why_not_here(facts))
    known, threads = facts["signature"], facts["threads"]
    signature = None if known is None else Signature.from_json(known)
    try:
        runtime.load_tvm_runtime()
        memory_of(device := device_in(facts))
        for name in backends_in(facts):
            runtime.load(name)
        _refuse(path, seal.why_not_here(file))
        module = library_file.read(library_file.name_of(file))
        program = Program(
            module, facts["inputs"], signature=signature, saved=file, threads=threads, device=device
        )
        if program._main is None:  # starts the VM, which fails here if the program cannot run
            raise AttributeError("it has no function main")
    except CollageError:
        raise
    except Exception as error:  # the loader, or a part of the program, fails: the error becomes the reason
        raise CollageError(f"{path} cannot be loaded as a program: {first_line(error)}") from error
    if reason := _why_slower_here(threads):
        warnings.warn(f"{path} {reason}", stacklevel=3)
    return program


def _refuse(path: str | Path, reason: str | None) -> None:
    if reason is not None:
        raise CollageError(f"{path} cannot be loaded as a program: {reason}")


def _why_slower_here(threads: int | None) -> str | None:
    """Why a program that was measured for so many threads may not be the fastest in this process, or None."""
    here = runtime.num_threads()
    if threads is None or threads == here:
        return None
    return (
        f"was measured for {threads} threads, and this process uses {here}: call "
        f"unity_collage.set_num_threads({threads}) before, or compile the model with threads={here}"
    )
