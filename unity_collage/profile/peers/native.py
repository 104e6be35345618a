"""Runs third-party native code: its output is kept off our streams, and its last line becomes the reason of a
failure.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType

from ...errors import ModelError

_DECORATION = re.compile(r"\x1b\[[0-9;]*m|^\[[\d:]+\] :\d+: |^\[ERROR\]:? *")
"""Colours, and what MNN puts before a message."""
_SAYS_NOTHING = ("", "Converted Failed!")
_STREAMS = (1, 2)


def module(name: str, package: str) -> ModuleType:
    """A module of an optional package; raises ModuleNotFoundError with what to install."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name} is missing: pip install {package}") from error


def convert(command: Sequence[str | Path], folder: Path, result: Path) -> None:
    """Run a converter in ``folder``; raises ModelError with its last line of output if it does not write ``result``."""
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode != 0 or not result.exists():
        raise ModelError(f"not converted: {cause(done.stdout) or f'exit status {done.returncode}'}")


def cause(output: bytes) -> str:
    """The last line of an output that is not blank, without colours; empty if there is none."""
    lines = [_DECORATION.sub("", line).strip() for line in output.decode(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line not in _SAYS_NOTHING), "")


@contextmanager
def kept_output() -> Iterator[Callable[[], str]]:
    """Capture what native code writes to the standard streams; yields a function that returns its last line so far."""
    flush = ctypes.CDLL(None).fflush
    with TemporaryFile() as kept:
        flush(None)
        ours = [os.dup(stream) for stream in _STREAMS]

        def said() -> str:
            flush(None)
            return cause(os.pread(kept.fileno(), os.fstat(kept.fileno()).st_size, 0))

        try:
            for stream in _STREAMS:
                os.dup2(kept.fileno(), stream)
            yield said
        finally:
            flush(None)
            for stream, our in zip(_STREAMS, ours, strict=True):
                os.dup2(our, stream)
                os.close(our)
