"""The process that builds kernels for other machines. A compiler that crashes it does not end the caller.

Started as ``python -m unity_collage.measure.remote.builder FD``; the protocol is in
:mod:`unity_collage.processes.child`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target

from ...backends.registry import get
from ...processes.child import Reply
from ...processes.serving import serve
from .. import kernel_library
from ..inputs import random_inputs
from ..kernels import make_kernel


def _made(_hello: dict[str, Any]) -> Any:
    return _answer


def _answer(request: dict[str, Any]) -> Reply:
    func = tvm.ir.load_json(request["function"])
    target = Target(json.loads(request["target"]))
    kernel = make_kernel(func, random_inputs(func), get(request["backend"]), target)
    kernel_library.write(kernel, target, Path(request["library"]), Path(request["constants"]))
    return {}


if __name__ == "__main__":
    serve(_made)
