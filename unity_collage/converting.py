"""Runs converters of models that come with other packages, each in a process of its own: a converter may end it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import ModelError

_DECORATION = re.compile(r"\x1b\[[0-9;]*m|^\[[\d:]+\] :\d+: |^\[ERROR\]:? *")
"""Colours, and what MNN puts before a message."""
_SAYS_NOTHING = ("", "Converted Failed!")
_TO_MNN = "import sys, _tools; _tools.mnnconvert(sys.argv)"
"""The code that converts a model by its arguments. The command ``mnnconvert`` would install a package with pip and send
the size of the model to a server. The converter below it does neither.
"""


def to_mnn(model: Path, result: Path, seconds: float | None = None) -> None:
    """Convert the ONNX file ``model`` to MNN's format, with weights in float32.

    Raises ModelError with what MNN said, or if it takes more than ``seconds``.
    """
    options = ("-f", "ONNX", "--modelFile", model.absolute(), "--MNNModel", result, "--bizCode", "collage")
    convert([sys.executable, "-c", _TO_MNN, *options], result.parent, result, seconds)


def convert(command: Sequence[str | Path], folder: Path, result: Path, seconds: float | None = None) -> None:
    """Run a converter in ``folder``.

    Raises ModelError with its last line of output if it does not write ``result``, or if it takes more than
    ``seconds``.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"not converted within {seconds:g} s") from error
    if done.returncode != 0 or not result.exists():
        raise ModelError(f"not converted: {cause(done.stdout) or f'exit status {done.returncode}'}")


def cause(output: bytes) -> str:
    """The last line of an output that is not blank, without colours; empty if there is none."""
    lines = [_DECORATION.sub("", line).strip() for line in output.decode(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line not in _SAYS_NOTHING), "")
