"""Compile, save, load and run a small model with the package that is installed, by the command line and from Python.

The numbers are compared with those of ``onnx.reference``. Needs nothing but the package. If something is wrong, a
line says what, and the exit code is 1.
"""

import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import unity_collage as uc
from unity_collage.runtime.vendors import VENDORS

LIBRARIES = tuple(
    name
    for name in ("onednn", "openblas", "kernels")
    if (vendor := VENDORS[name]) is None or vendor.why_no_wheel() is None
)
IMAGE = (1, 3, 32, 32)


def main() -> None:
    print(f"unity_collage {uc.__version__} of {Path(uc.__file__).parent}, Python {platform.python_version()}")
    print(listing := said("backends"), end="")
    for name in (*LIBRARIES, "tvm"):
        if not any(line.split()[:2] == [name, "available:"] for line in listing.splitlines()):
            sys.exit(f"the backend {name} is not available")
    with tempfile.TemporaryDirectory() as name:
        check_model(Path(name))
    print("numbers agree with onnx.reference")


def check_model(folder: Path) -> None:
    """Compile, load and run a model in ``folder``, with all backends and with each library alone.

    Ends the process with a line where the numbers are wrong.
    """
    model = small_model()
    onnx.save(model, folder / "model.onnx")
    image = np.random.default_rng(1).standard_normal(IMAGE, dtype=np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"image": image})
    options = ["-o", folder / "model.so", "--database", folder / "costs.sqlite", "--budget", "10s"]
    for choice in ([], *(["--backends", name] for name in LIBRARIES)):
        print(said("compile", folder / "model.onnx", *options, *choice), end="")
        scores = np.asarray(uc.load(folder / "model.so")(image))
        if not np.allclose(scores, expected, rtol=1e-4, atol=1e-4):
            sys.exit(f"the results are off by {np.abs(scores - expected).max()}")


def said(*arguments: object) -> str:
    """The output of ``unity-collage`` with these arguments; ends the process if it fails or prints a warning."""
    script = Path(sys.executable).with_name("unity-collage")
    start = [str(script)] if script.exists() else [sys.executable, "-m", "unity_collage"]
    command = [*start, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900
    )  # an emulated processor is slow
    if done.returncode != 0 or "Traceback" in done.stdout + done.stderr:
        sys.exit(f"unity-collage {arguments[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    print(done.stderr, end="", file=sys.stderr)
    return done.stdout


def small_model() -> onnx.ModelProto:
    """A convolution with ReLU of an image, averaged, and a product: ``image`` to ``scores``."""
    random = np.random.default_rng(0)
    weights = {"kernel": (16, 3, 3, 3), "matrix": (16, 10)}
    nodes = [
        helper.make_node("Conv", ["image", "kernel"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "matrix"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, IMAGE)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (1, 10))],
        [
            numpy_helper.from_array(random.standard_normal(shape, dtype=np.float32), name)
            for name, shape in weights.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


if __name__ == "__main__":
    main()
