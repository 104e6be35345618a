"""Compiles small networks with TVM for the GPU that is found, and writes what became of them to standard output.

usage: compile_for_gpu.py FOLDER PRECISION
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from device_models import CONV_NET, IMAGE, MOBILE_NET
from tvm.ir import IRModule

import unity_collage as uc


def main(folder: Path, precision: str) -> None:
    program = compiled(CONV_NET, folder, precision)
    result = program(IMAGE)
    program.benchmark(IMAGE, seconds=0.01)
    program.save(folder / "program.so")
    loaded = uc.load(folder / "program.so")(IMAGE)
    other = compiled(MOBILE_NET, folder, precision)
    json.dump(
        {
            "device": program.device,
            "shape": np.asarray(result).shape,
            "loaded": np.asarray(loaded).shape,
            "reasons": [each.reason for made in (program, other) for each in made.plan["main"].without_cost],
        },
        sys.stdout,
    )


def compiled(model: Any, folder: Path, precision: str) -> uc.Program:
    return uc.compile(
        IRModule({"main": model}),
        target="cuda",
        backends=["tvm"],
        precision=precision,
        database=folder / "costs.sqlite",
        explain=True,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
