"""``unity-collage examples``: models to try, written without a network."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..lowering.library_file import write
from .as_json import add_json, print_json
from .exit_codes import UsageError
from .files import check_written

_SUFFIXES = {"--output": ".onnx", "--inputs": ".npz"}
"""How the names of files end: commands that read them go by that."""


def add_command(commands: Any) -> None:
    """Add ``examples`` to ``commands``."""
    text = "list models to try, or write one as an .onnx file"
    command = commands.add_parser(
        "examples",
        help=text,
        description=f"{text.capitalize()}. Weights are drawn from seeds: all machines write the same file.",
    )
    command.add_argument("name", nargs="?", metavar="NAME", help="the model to write (default: list them)")
    command.add_argument(
        "-o", "--output", metavar="FILE.onnx", help="where to write it (default: NAME.onnx in this folder)"
    )
    command.add_argument("--inputs", metavar="FILE.npz", help="also write random inputs for it, by name")
    add_json(command)
    command.set_defaults(run=_examples)


def _examples(options: argparse.Namespace) -> None:
    if options.name is not None:
        _write(options)
        return
    if options.output or options.inputs:
        raise UsageError("name the example to write, such as: unity-collage examples small -o small.onnx")
    _list(options)


def _list(options: argparse.Namespace) -> None:
    from ..examples import EXAMPLES

    if options.json:
        print_json({"examples": [{"name": each.name, "about": each.about} for each in EXAMPLES.values()]})
        return
    width = max(map(len, EXAMPLES))
    for each in EXAMPLES.values():
        print(f"{each.name:{width}}  {each.about}")


def _write(options: argparse.Namespace) -> None:
    from ..examples import example, random_inputs_of

    try:
        found = example(options.name)
    except ModelError as error:
        raise UsageError(str(error)) from None
    path = options.output or f"{found.name}.onnx"
    for option, wanted in (("--output", path), ("--inputs", options.inputs)):
        check_written(option, wanted, (_SUFFIXES[option],))
    model = found.make()
    write(Path(path), model.SerializeToString())
    wrote = [path]
    if options.inputs:
        write(Path(options.inputs), _npz(random_inputs_of(model)))
        wrote.append(options.inputs)
    if options.json:
        print_json({"wrote": wrote})
        return
    for each in wrote:
        print(f"wrote {each}")


def _npz(arrays: dict[str, Any]) -> bytes:
    from io import BytesIO

    import numpy as np

    file = BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()
