"""The worker process for kernels on a CUDA device; :mod:`unity_collage.measure.worker` describes its replies."""

from __future__ import annotations

from collections.abc import Callable

from ...processes.process import Message
from ...processes.serving import Say, serve_messages
from ..worker import ready
from .bench import CudaBench


def _ready(hello: Message, _connection: int, say: Say) -> Callable[[Message], None]:
    return ready(CudaBench(hello["lock"]), hello, say)


if __name__ == "__main__":
    serve_messages(_ready)
