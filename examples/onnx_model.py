"""Compile an ONNX model for this machine, show the plan, run the program, time it, save it and load it again.

usage: onnx_model.py [NAME or MODEL.onnx] [MORE ...]

NAME is a model of the zoo in benchmarks/, by default resnet50; an unknown name prints the list. The first run measures
kernels, later runs take seconds.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console

import unity_collage as uc
from unity_collage.profile.peers.bench import feeds_of
from unity_collage.report import duration, plan_summary

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
import zoo_models as models

console = Console(highlight=False)


def main(name: str) -> None:
    model = onnx.load(name) if name.endswith(".onnx") else models.load(name)
    program = uc.compile(model, progress=True)
    for function, plan in program.plan.items():
        console.print(plan_summary(function, plan))

    feeds = feeds_of(program)
    output = first(program(**feeds))
    median = duration(program.benchmark(**feeds)["median"])
    console.print(f"\noutput {output.shape}, median {median} on {uc.num_threads()} threads")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.so"
        program.save(path)
        again = first(uc.load(path)(**feeds))
        np.testing.assert_array_equal(output, again)
        console.print(f"saved as {path.stat().st_size / 1e6:.1f} MB, loaded, same numbers")


def first(outputs: object) -> np.ndarray:
    """The first output of a model, which may have one or several."""
    return (outputs if hasattr(outputs, "numpy") else outputs[0]).numpy()


if __name__ == "__main__":
    for argument in sys.argv[1:] or ["resnet50"]:
        main(argument)
