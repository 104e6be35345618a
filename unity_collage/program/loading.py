"""Reads programs that :meth:`Program.save` wrote."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

from .. import runtime
from ..calling.memory import CUDA, memory_of
from ..calling.signature import Signature
from ..errors import CollageError, first_line, is_file, not_a_file, warn
from ..ffi import tvm_ffi
from ..lowering import library_file, seal
from ..lowering.seal import facts_in
from .compiled import Program
from .facts import Facts, backends_in, device_in, devices_in, plans_in, why_not_here


def load(path: str | Path) -> Program:
    """The program that :meth:`Program.save` wrote; raises CollageError with the reason in one line.

    The file is verified first, and so are the processor and the libraries that the program needs: a truncated
    library, or an instruction that the processor lacks, would end the process. A warning is given if the program was
    measured for another number of threads than this process uses.
    """
    if not is_file(path):
        raise CollageError(not_a_file(path))
    file = library_file.opened(path)
    try:
        return _loaded(file, path)
    except Exception:
        file.close()
        raise


def from_library(library: bytes) -> Program:
    """The program in the bytes of a saved file, for pickle."""
    from ..scratch import Scratch  # takes long to import, and most programs need none

    with Scratch("program") as folder:
        path = Path(folder) / "program.so"
        path.write_bytes(library)
        return load(path)


def _loaded(file: BinaryIO, path: str | Path) -> Program:
    """The program in an open file that is verified; ``path`` names it in messages."""
    facts: Facts = facts_in(file)
    try:
        program = _program(_module_in(file, facts, path), file, facts)
        if program._main is None:  # starts the VM, which fails here if the program cannot run
            raise AttributeError("it has no function main")
    except CollageError:
        raise
    except Exception as error:  # the loader, or a part of the program, fails: the error becomes the reason
        raise CollageError(f"{path} cannot be loaded as a program: {first_line(error)}") from error
    if reason := _why_slower_here(facts["threads"]):
        warn(f"{path} {reason}")
    return program


def kept_program(file: BinaryIO) -> Program:
    """The program in a verified open file that a compile has kept, with its plans.

    Like a new program it starts with its first run, and then raises an error if it is for another processor.
    """
    facts: Facts = facts_in(file)
    executable = SimpleNamespace(jit=partial(_module_in, file, facts, "the kept program"))  # as those of TVM
    program = _program(executable, file, facts)
    program.plan = plans_in(facts)
    return program


def _program(executable: Any, file: BinaryIO, facts: Facts) -> Program:
    known = facts["signature"]
    return Program(
        executable,
        facts["inputs"],
        signature=None if known is None else Signature.from_json(known),
        saved=file,
        threads=facts["threads"],
        device=device_in(facts),
        devices=devices_in(facts),
    )


def _module_in(file: BinaryIO, facts: Facts, path: str | Path) -> Any:
    """The module in an open file, loaded after the libraries that it needs; ``path`` names it in messages."""
    _refuse(path, why_not_here(facts))
    runtime.load_tvm_runtime()
    places = devices_in(facts) or (device_in(facts),)
    for place in places:
        memory_of(place)
    for name in backends_in(facts):
        runtime.load(name)
    _refuse(path, seal.why_not_here(file))
    try:
        module = library_file.read(library_file.name_of(file))
    except RuntimeError as error:  # of the loader too, which may add lines
        raise CollageError(f"{path} cannot be loaded as a program: {first_line(error)}") from error
    if any(
        place.startswith(CUDA) for place in places
    ):  # its kernels may run on when nothing refers to it any more
        tvm_ffi.get_global_func("ffi.ModuleGlobalsAdd")(module)
    return module


def _refuse(path: str | Path, reason: str | None) -> None:
    if reason is not None:
        raise CollageError(f"{path} cannot be loaded as a program: {reason}")


def _why_slower_here(threads: int | None) -> str | None:
    """Why a program that was measured for ``threads`` threads may not be the fastest in this process, or None."""
    here = runtime.num_threads()
    if threads is None or threads == here:
        return None
    return (
        f"was measured for {threads} threads, and this process uses {here}: call "
        f"unity_collage.set_num_threads({threads}) before, or compile the model with threads={here}"
    )
