"""Compile a model here for another processor, by rule and by costs that such a machine measures, and run it there.

    python scripts/check_aarch64.py PYTHON

``PYTHON`` is an interpreter with this package on the other processor, such as an emulator starts it. The numbers are
compared with those of ``onnx.reference``. If something is wrong, a line says what, and the exit code is 1. Needs the
extra ``rpc`` here and there.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import numpy as np
import onnx
from check_installed import IMAGE, small_model
from onnx.reference import ReferenceEvaluator
from tvm.rpc.tracker import Tracker

import unity_collage as uc
from unity_collage.lowering.object_file import is_linked
from unity_collage.measure.remote import RemoteCost

TARGET = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
COMPILER = "aarch64-linux-gnu-g++"
KEY = "board"
RUNNING = """
import sys, numpy as np, unity_collage as uc
np.save(sys.argv[3], np.asarray(uc.load(sys.argv[1])(np.load(sys.argv[2]))))
"""


def main() -> None:
    (python,) = sys.argv[1:]
    model = small_model()
    image = np.random.default_rng(1).standard_normal(IMAGE, dtype=np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"image": image})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(model, folder / "model.onnx")
        np.save(folder / "image.npy", image)

        def check(what: str, program: uc.Program) -> None:
            program.save(folder / "model.so")
            paths = [str(folder / file) for file in ("model.so", "image.npy", "scores.npy")]
            subprocess.run([python, "-c", RUNNING, *paths], check=True, timeout=300, env=_environment(python))
            error = np.abs(np.load(folder / "scores.npy") - expected).max()
            if error > 1e-4:
                sys.exit(f"{what}: the results are off by {error}")
            (kernels,) = [plan.kernels for name, plan in (program.plan or {}).items() if name == "main"]
            print(
                f"{what}: numbers agree; kernels of {', '.join(sorted({each.backend for each in kernels}))}"
            )

        def by_rule() -> uc.Program:
            return uc.compile(str(folder / "model.onnx"), target=TARGET, database=folder / "rules.sqlite")

        check("kernels by rule, as object code", by_rule())
        if which(COMPILER) is None:
            print(f"NOT CHECKED: there is no {COMPILER} to link a shared library")
        else:
            os.environ["CXX"] = COMPILER  # another program is kept with it
            check("kernels by rule, as a shared library", by_rule())
            del os.environ["CXX"]
            if not is_linked(folder / "model.so"):
                sys.exit(f"{COMPILER} has linked nothing")
        with server(python) as tracker:
            costs = RemoteCost(uc.CostDatabase(folder / "costs.sqlite"), tracker=tracker, key=KEY)
            check("kernels by cost", uc.compile(str(folder / "model.onnx"), estimator=costs))


@contextmanager
def server(python: str) -> Iterator[str]:
    """A tracker, whose address this is, and a server of ``python`` that measures for it."""
    tracker = Tracker("127.0.0.1", 9190, 9290, silent=True)
    address = f"127.0.0.1:{tracker.port}"
    command = [python, "-m", "unity_collage.measure.remote.server", "--tracker", address, "--key", KEY]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1"], start_new_session=True, env=_environment(python)
    )
    try:
        yield address
    finally:
        tracker.terminate()
        os.killpg(process.pid, signal.SIGTERM)


def _environment(python: str) -> dict[str, str]:
    """An environment without the compilers of this machine."""
    return {"PATH": str(Path(python).parent), "HOME": str(Path(python).parents[1]), "LANG": "C.UTF-8"}


if __name__ == "__main__":
    main()
