"""torch.compile beside the peers of zoo.py, on the networks of this folder, all of which were torch's to begin with.

usage: torch_compile.py [--rounds R] [--seconds S] [--json FILE] [NAME ...]

It runs in this process on as many threads as the peers, with frozen weights; each peer has a process of its own.
Weights are other draws of the same shapes. Needs what export.py needs. Prints how many times as long as each peer it
takes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import export  # pyright: ignore[reportMissingImports]
import onnx
import torch  # pyright: ignore[reportMissingImports]
from torch._inductor import config  # pyright: ignore[reportMissingImports]

from unity_collage import bench
from unity_collage.bench import Contestant
from unity_collage.bench.rounds import Timed
from unity_collage.testing import models

OWN = "torch.compile"
PEERS = ("onnxruntime", "openvino")
THREADS = len(os.sched_getaffinity(0))
"""Not asked of our runtime, which would run torch's parallel loops once it is loaded."""


def compiled(name: str) -> Timed:
    """The network, compiled."""
    module, value = export.MODELS[name]()
    run = torch.compile(module.eval())
    with torch.no_grad():
        for _ in range(3):
            run(value)

    def timed(seconds: float) -> list[float]:
        runs: list[float] = []
        end = time.perf_counter() + seconds
        with torch.no_grad():
            while time.perf_counter() < end or not runs:
                begin = time.perf_counter()
                run(value)
                runs.append(time.perf_counter() - begin)
        return runs

    return timed


def race(name: str, rounds: int, seconds: float) -> dict[str, list[float]]:
    """The median seconds of each, by round."""
    model = models.load(name, Path(__file__).parent)
    feeds = models.inputs(model)
    with TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        entries: dict[str, Timed] = {OWN: compiled(name)}
        for peer in PEERS:
            entries[peer] = stack.enter_context(Contestant(peer, path, feeds, THREADS))
        return bench.interleaved(entries, rounds, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    config.freezing = True
    found: dict[str, dict[str, list[float]]] = {}
    for name in options.names or export.MODELS:
        found[name] = race(name, options.rounds, options.seconds)
        against = (f"{peer} {bench.speedup(found[name][peer], found[name][OWN]):.2f}x" for peer in PEERS)
        sys.stdout.write(f"{name:24s} as long as {', '.join(against)}\n")
        sys.stdout.flush()
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
