"""The order of calls on streams of the CUDA device.

TVM keeps freed memory for reuse, and may give memory that work of one stream still uses to a call on another stream.
So a call on another stream than the previous call waits, on the device, for the work that was in that stream by then.
Calls are launched one at a time. A thread that frees a result while another thread launches a call on another stream
must wait for its own stream before.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from unity_collage.runtime import cuda

from ..ffi import tvm_ffi

_LAUNCHING = threading.RLock()
_FIRST = tvm_ffi.device("cuda", cuda.DEVICE[1])


class _Last:
    """The stream of the last call in this process: all programs share TVM's memory."""

    stream = 0


def current_stream() -> int:
    """The stream on which TVM's kernels of this thread run, as an address; 0: the default stream."""
    return tvm_ffi.get_raw_stream(_FIRST)


def on_stream(stream: int) -> Any:
    """A context in which TVM's kernels of this thread run on ``stream``."""
    return tvm_ffi.use_raw_stream(_FIRST, stream)


def in_order(call: Callable[..., Any]) -> Callable[..., Any]:
    """``call``, which launches kernels on the current stream, ordered after the calls of other streams.

    It raises RuntimeError where the thread uses another device, or the stream is captured.
    """
    several = cuda.count() > 1

    def ordered(*arguments: Any) -> Any:
        stream = current_stream()
        if reason := _why_not_on(stream, several):
            raise RuntimeError(reason)
        with _LAUNCHING:
            if stream != _Last.stream:
                _let_wait(stream, _Last.stream)
                _Last.stream = stream
            return call(*arguments)

    return ordered


def waiting(call: Callable[..., Any], arguments: Sequence[Any]) -> tvm_ffi.Function:
    """A function for timing loops: it calls ``call`` on the stream that is current now, and waits for the stream."""
    stream = current_stream()

    def run() -> None:
        with on_stream(stream):
            call(*arguments)
        cuda.synchronize(stream)

    return tvm_ffi.convert(run)


@contextmanager
def alone() -> Iterator[None]:
    """A context for TVM's work on the default stream: nothing else of this process runs on the device meanwhile."""
    with _LAUNCHING:
        cuda.synchronize_device()
        yield
        cuda.synchronize_device()


def _let_wait(stream: int, other: int) -> None:
    try:
        cuda.let_wait(stream, other)
    except RuntimeError:  # the other stream is destroyed
        cuda.synchronize_device()


def _why_not_on(stream: int, several: bool) -> str | None:
    if several and (device := cuda.current_device()) != cuda.DEVICE[1]:
        return (
            f"this thread uses CUDA device {device}, and programs run on device {cuda.DEVICE[1]}: call it inside "
            f"`with torch.cuda.device({cuda.DEVICE[1]}):`"
        )
    if stream and cuda.is_captured(stream):  # the default stream cannot be captured
        return (
            "a program cannot be captured in a CUDA graph, since later calls use its memory: call it outside"
        )
    return None
