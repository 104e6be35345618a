"""The process that builds kernels for other machines. A compiler that crashes it does not end the caller.

Started as ``python -m unity_collage.measure.remote.builder FD``; the protocol is in
:mod:`unity_collage.processes.child`. A reply is empty, or a refusal.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target

from ...backends.registry import get
from ...database.rows import FailureKind
from ...processes.process import Message
from ...processes.serving import Say, serve_messages
from .. import kernel_library
from ..inputs import random_inputs
from ..kernels import NoKernel, make_kernel
from ..refusal import Refusal, refusal_of
from .messages import encoded


def _ready(_hello: dict[str, Any], _connection: int, say: Say) -> Callable[[Message], None]:
    def answer(request: Message) -> None:
        say({"stage": "building"})
        refusal = _why_not_built(request)
        say({} if refusal is None else encoded(refusal))

    return answer


def _why_not_built(request: Message) -> Refusal | None:
    """Build a kernel and write its files; why that failed, or None."""
    try:
        func = tvm.ir.load_json(request["function"])
        target = Target(json.loads(request["target"]))
        kernel = make_kernel(func, random_inputs(func), get(request["backend"]), target)
        kernel_library.write(kernel, target, Path(request["library"]), Path(request["constants"]))
    except NoKernel as error:
        return Refusal(str(error))
    except Exception as error:  # a foreign compiler failed: its error becomes the reason
        return refusal_of(error, FailureKind.COMPILE_ERROR)
    return None


if __name__ == "__main__":
    serve_messages(_ready)
