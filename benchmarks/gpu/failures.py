"""What a failure leaves behind: a reason, and sometimes a process that must not use the device again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CaptureFailed(Exception):
    """Work failed while CUDA graphs were captured from it; the text is the reason.

    The stream may still be captured, and torch's allocator may still give memory of the graph's pool to other work.
    """


@contextmanager
def capturing(device: str) -> Iterator[None]:
    """A context for work that may capture CUDA graphs: its errors become CaptureFailed, except on the CPU."""
    try:
        yield
    except Exception as error:  # a competitor fails in its own way, and its error becomes the reason
        if device == "cpu":
            raise
        raise CaptureFailed(reason_of(error)) from error


def reason_of(error: BaseException) -> str:
    """The error in one line of at most 300 characters."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
