"""Compile a model for this machine, look at the plan, run it, time it, save it and load it again.

usage: onnx_model.py [NAME or MODEL.onnx] [MORE ...]      (NAME: one of the model zoo; default resnet50)
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console

import unity_collage as uc
from unity_collage.bench import random_feeds
from unity_collage.report import kernel_table
from unity_collage.testing import models


def main(name: str) -> None:
    model = onnx.load(name) if name.endswith(".onnx") else models.load(name)
    program = uc.compile(model)
    console = Console()
    for function, plan in program.plan.items():
        console.print(f"[bold]{function}[/bold]: {len(plan['kernels'])} kernels")
        console.print(kernel_table(plan))

    feeds = random_feeds(model)
    outputs = program(**feeds)
    first = outputs if not isinstance(outputs, (list, tuple)) else outputs[0]
    timing = program.benchmark(**feeds)
    console.print(
        f"output {tuple(first.shape)}, median {timing['median'] * 1e3:.3f} ms on {uc.num_threads()} threads"
    )

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.so"
        program.save(path)
        again = uc.load(path)(**feeds)
        first_again = again if not isinstance(again, (list, tuple)) else again[0]
        np.testing.assert_array_equal(first.numpy(), first_again.numpy())
        console.print(f"saved as {path.stat().st_size / 1e6:.0f} MB, loaded, same numbers")


if __name__ == "__main__":
    for argument in sys.argv[1:] or ["resnet50"]:
        main(argument)
