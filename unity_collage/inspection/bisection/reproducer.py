"""Files that show the fault of one kernel: its operators as a model, and the values that it gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CollageError
from ...lowering.library_file import why_no_file
from ...to_onnx import NotExported, exported
from .alone import KernelAlone

SUFFIX = ".onnx"

_SCRIPT = '''\
"""The kernel {label} of the backend {backend}: its results beside numpy's, on the values in {values}."""

from pathlib import Path

import numpy as np
import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import unity_collage as uc
from unity_collage import reference

{module}

with np.load(Path(__file__).with_name("{values}")) as stored:
    arguments = [stored[name] for name in {names}]
    weights = {{name: stored[name] for name in {weights}}}
program = uc.compile(Module, params=weights, backends=["{backend}"], measure=False, recompile=True)
found = program(*arguments)
results = [found] if hasattr(found, "numpy") else list(found)
expected = reference.run(Module["main"], [*arguments, *weights.values()], Module)
for value, right in zip(results, expected, strict=True):
    print("largest error over the range:", np.max(np.abs(value.numpy() - right)) / np.max(np.abs(right)))
'''


def write_reproducer(path: Path, found: KernelAlone, backend: str, label: str) -> tuple[str, ...]:
    """Write the operators of a kernel to ``path`` and its inputs beside it; the result are the files.

    Where an operator has no counterpart in ONNX the model is a script. Raises CollageError with the reason.
    """
    for wanted in (path, path.with_suffix(".npz"), path.with_suffix(".py")):
        if reason := why_no_file(wanted):
            raise CollageError(f"{wanted} cannot be written: {reason}")
    values = path.with_suffix(".npz")
    arrays: dict[str, Any] = dict(zip(found.names, found.arguments, strict=True))
    try:
        model = exported(found.module["main"], found.module, inputs=found.names)
    except NotExported:
        arrays |= zip(found.names_of_weights, found.weights, strict=True)
        np.savez(values, **arrays)
        script = path.with_suffix(".py")
        script.write_text(_script(found, values.name, backend, label), encoding="utf-8")
        return str(script), str(values)
    np.savez(values, **arrays)
    path.write_bytes(model.SerializeToString())
    return str(path), str(values)


def numbered(path: Path, number: int, of: int) -> Path:
    """The file of one of several kernels: ``case.onnx``, or ``case_2.onnx``."""
    return path if of == 1 else path.with_stem(f"{path.stem}_{number}")


def _script(found: KernelAlone, values: str, backend: str, label: str) -> str:
    return _SCRIPT.format(
        label=label,
        backend=backend,
        values=values,
        names=list(found.names),
        weights=list(found.names_of_weights),
        module=found.lifted.script(show_meta=True),
    )
