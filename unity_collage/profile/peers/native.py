"""Keeps the output of third-party native code off our streams; its last line becomes the reason of a failure."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from tempfile import TemporaryFile
from types import ModuleType

from ...converting import cause

_STREAMS = (1, 2)


def module(name: str, package: str) -> ModuleType:
    """A module of an optional package; raises ModuleNotFoundError with what to install."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name} is missing: pip install {package}") from error


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
