"""``unity-collage bind``: a model file some of whose inputs are constants."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..errors import CollageError, first_line
from ..lowering.library_file import write
from .as_json import add_json, print_json
from .exit_codes import UsageError
from .files import check_written


def add_command(commands: Any) -> None:
    """Add ``bind`` to ``commands``."""
    text = "write a model with some of its inputs as constants"
    command = commands.add_parser(
        "bind",
        help=text,
        description=f"{text.capitalize()}. A compile then knows what follows from these inputs: which branch of an If "
        "is taken, and sizes.",
    )
    command.add_argument("model", metavar="MODEL.onnx", help="the model")
    command.add_argument(
        "values",
        nargs="+",
        type=_value,
        metavar="NAME=VALUE",
        help="an input and its value: a number, a list such as [1,2,3], or the name of a file that ends in .npy",
    )
    command.add_argument(
        "-o", "--output", metavar="FILE.onnx", required=True, help="where to write the model"
    )
    add_json(command)
    command.set_defaults(run=_bind)


def _value(text: str) -> tuple[str, Any]:
    """``sr=16000``, ``scales=[1,0.5]``, ``mask=mask.npy``."""
    name, _, value = text.partition("=")
    if name and value.endswith(".npy"):
        return name, Path(value)
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not name or not isinstance(found, (bool, int, float, list)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an input with its value: write NAME=16000, NAME=[1,2,3] or NAME=FILE.npy"
        )
    return name, found


def _bind(options: argparse.Namespace) -> None:
    path = Path(options.output)
    check_written("--output", options.output, (".onnx",))
    values: dict[str, Any] = {}
    for name, value in options.values:
        if name in values:
            raise UsageError(f"{name} is given twice")
        values[name] = _read(value) if isinstance(value, Path) else value
    from ..calling.binding import with_constant_inputs
    from ..frontend.onnx.reading import OnnxFile, files_of_weights, read_onnx

    file, _ = with_constant_inputs(read_onnx(Path(options.model)), values)
    assert isinstance(file, OnnxFile)
    if files_of_weights(file.model) and path.parent.resolve() != Path(options.model).parent.resolve():
        raise CollageError(
            f"{path} cannot be written: the weights are in files beside the model; write into the model's folder"
        )
    write(path, file.model.SerializeToString())
    if options.json:
        print_json({"wrote": [str(path)]})
    else:
        print(f"wrote {path}")


def _read(path: Path) -> Any:
    """The array in a file."""
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CollageError(f"{path} does not hold an array: {first_line(error)}") from error
