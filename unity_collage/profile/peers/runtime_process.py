"""A runtime with a model, in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...defaults import UNROUNDED
from ...errors import CollageError
from ...measure.compare import why_wrong
from ...processes.child import Child, Reply
from ...scratch import Scratch
from ..stored_inputs import store
from .runtimes import ONNX_RUNTIME, RUNTIMES, Inputs

TIMEOUT_SECONDS = 600.0
"""The limit for one answer; the first one includes the runtime's own compilation of the model."""

TOLERANCE = 1e-3
"""The largest error of a runtime's numbers, as a part of a result's range."""


class RuntimeMissing(CollageError):
    """A runtime cannot run the model here; the text says why."""


class RuntimeProcess:
    """One runtime, ready to be timed. Close it when done, or use it as a context manager."""

    def __init__(
        self,
        name: str,
        path: str | Path,
        inputs: Inputs,
        threads: int,
        runner: str | None = None,
        folders: Sequence[str | Path] = (),
        libraries: Sequence[str | Path] = (),
        is_reference: bool = False,
    ):
        """Load a model into a runtime; raises RuntimeMissing.

        ``path``: an ONNX model, or a saved program for ours. ``name``: one of ``RUNTIMES``. For any other runtime
        ``runner`` is the function that runs it, as ``module:function``; modules are also searched in ``folders``.
        ``libraries``: those with custom operators, which only ONNX Runtime registers. ``is_reference``: whether others
        are compared with its results, so that ONNX Runtime rounds nothing to 8 bits that the model does not.
        """
        self.name = name
        self._folder = Scratch("bench")
        values = Path(self._folder.name) / "inputs.npz"
        store(values, [list(inputs.values())])
        hello = {
            "runner": runner or RUNTIMES[name],
            "folders": [str(folder) for folder in folders],
            "path": str(Path(path).resolve()),
            "inputs": str(values),
            "names": list(inputs),
            "threads": threads,
            "folder": self._folder.name,
            "more": {
                "libraries": [str(Path(each).absolute()) for each in libraries],
                "settings": UNROUNDED if is_reference else {},
            }
            if name == ONNX_RUNTIME
            else {},
        }
        self._child = Child("unity_collage.profile.peers.worker", hello, TIMEOUT_SECONDS)
        self._ask({"ask": "outputs"})

    def timed(self, seconds: float) -> list[float]:
        """Run for about ``seconds``; the result is the seconds of each run, sorted, at most 1,000 of them."""
        return [float(value) for value in self._ask({"ask": "timed", "seconds": seconds})["runs"]]

    def __call__(self, seconds: float) -> list[float]:
        return self.timed(seconds)

    def outputs(self) -> list[np.ndarray]:
        """The outputs of the model for the inputs."""
        self._ask({"ask": "outputs"})
        with np.load(Path(self._folder.name) / "outputs.npz") as stored:
            return [stored[name] for name in stored.files]

    def check(self, expected: Sequence[np.ndarray]) -> None:
        """End it and raise RuntimeMissing where its outputs are not ``expected``; types and shapes may differ."""
        reason = _why_other(self.outputs(), expected)
        if reason is not None:
            self.close()
            raise RuntimeMissing(f"{self.name}: {reason}")

    def close(self) -> None:
        """End the process."""
        self._child.close()
        self._folder.cleanup()

    def __enter__(self) -> RuntimeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: dict[str, Any]) -> Reply:
        reply = self._child.ask(request)
        if "reason" in reply:
            self.close()
            raise RuntimeMissing(f"{self.name}: {reply['reason']}")
        return reply


def _why_other(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str | None:
    sizes, right = [[value.size for value in values] for values in (found, expected)]
    if sizes != right:
        return f"its results have {sizes} elements in place of {right}"
    shaped = [value.reshape(other.shape) for value, other in zip(found, expected, strict=True)]
    refusal = why_wrong(shaped, expected, [TOLERANCE] * len(expected))
    return None if refusal is None else refusal.reason
