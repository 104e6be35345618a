"""The worker process of one runtime: it holds one model, and times it on request."""

from __future__ import annotations

import statistics
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np

from ...processes.child import Reply
from ...processes.serving import serve
from ..stored_inputs import stored
from .runtimes import Peer

MOST_RUNS = 1000
"""The most times that are sent, evenly spaced among the sorted ones."""


def _made(hello: dict[str, Any]) -> Any:
    (values,) = stored(Path(hello["inputs"]), 1)
    inputs = dict(zip(hello["names"], values, strict=True))
    sys.path += hello["folders"]
    run = EntryPoint("runner", hello["runner"], "runners").load()
    peer: Peer = run(Path(hello["path"]), inputs, hello["threads"], **hello["more"])

    def answer(request: dict[str, Any]) -> Reply:
        if request["ask"] == "timed":
            runs = sorted(peer.timed(request["seconds"]))
            step = max(1, len(runs) // MOST_RUNS)
            return {"runs": runs[::step], "median": statistics.median(runs)}
        np.savez(Path(hello["folder"]) / "outputs.npz", *peer.outputs())
        return {}

    return answer


if __name__ == "__main__":
    serve(_made)
