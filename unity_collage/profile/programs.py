"""Whole programs in one worker process, timed in turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from ..calling.describe import signature_of
from ..graph.devices import places_of
from ..lowering import library_file
from ..lowering.live_memory import weights_nbytes
from ..measure.loaded import LOADED
from ..processes.child import Child, Reply
from ..program.facts import facts_about
from ..scratch import Scratch
from .exceptional import InputSets
from .stored_inputs import store

TIMEOUT_SECONDS = 300.0
"""The limit for one answer of the worker; a program that needs longer is dropped."""

_LARGE_BYTES = 1 << 26
"""Programs of a model with as many bytes of weights are linked, so that the worker maps their weights: it copies those
of object files. Linking takes 0.1 s, for which smaller programs are not worth it.
"""

_ATTEMPTS = 3
"""How often a question is asked, and how many more processes than programs are started for it, where processes end."""

LEAST_RUNS = 3
"""The fewest runs of each program in a round."""


@dataclass(frozen=True, slots=True)
class FirstResults:
    """The first call of a program with some inputs."""

    seconds: float
    kernels: int
    """How many kernels libraries compiled in it."""
    compiling: float
    """The seconds that took."""
    results: list[np.ndarray]
    """As float64."""


class ProgramWorker:
    """A worker process that runs programs by name, all on the same inputs and threads. Use as a context manager.

    With several sets of inputs a run of a program is one for each of them, and its time is the sum.

    A program that crashes ends the worker. The next worker loads the programs again; one that crashes then is dropped.
    A question about it gets that reason.
    """

    def __init__(
        self,
        sets: InputSets,
        threads: int,
        timeout_seconds: float = TIMEOUT_SECONDS,
        model: IRModule | None = None,
    ):
        """``model``: the module that all programs were made from, which names their devices if there are several."""
        self._devices = () if model is None else places_of(model)
        self._signature = None
        if model is not None and self._devices:
            self._signature = replace(signature_of(model, model, None, None), shared=())
        self._is_linked = model is not None and weights_nbytes(model) >= _LARGE_BYTES
        self._folder = Scratch("programs")
        inputs = Path(self._folder.name) / "inputs.npz"
        store(inputs, sets)
        hello = {"threads": threads, "inputs": str(inputs), "sets": len(sets)}
        self._child = Child("unity_collage.profile.worker", hello, timeout_seconds, loaded=LOADED)
        self._paths: dict[str, Path] = {}
        self._loaded_by: dict[str, int] = {}
        """Which process has loaded a program: the number of its start."""
        self._dropped: dict[str, str] = {}
        """Why programs could not be loaded again."""
        self._numbers = count()

    def add(self, name: str, executable: relax.VMExecutable) -> str | None:
        """Load a program; the result is the reason if it cannot be loaded or run."""
        path = Path(self._folder.name) / f"{next(self._numbers)}.so"
        facts = facts_about(executable, signature=self._signature, devices=self._devices)
        library_file.export(executable, path, facts, is_linked=self._is_linked)
        return self._load(name, path)

    @property
    def was_silent(self) -> bool:
        """Whether the last program did not end within the time limit."""
        return self._child.was_silent

    def remove(self, name: str) -> None:
        """Drop a program and free its memory; does nothing if it could not be loaded."""
        path = self._paths.pop(name, None)
        if path is not None:
            self._ask({"ask": "drop", "name": name})
            path.unlink()

    def timed_in_turns(
        self,
        names: Sequence[str],
        rounds: int,
        round_seconds: float,
        percentile: float = 50.0,
        runs: int = LEAST_RUNS,
    ) -> dict[str, list[float]] | str:
        """The median, or another percentile, of the seconds of a run of each program, by round; or why there are none.

        A round has at least ``runs`` runs of each program.
        """
        request = {"ask": "turns", "names": list(names), "rounds": rounds, "round_seconds": round_seconds}
        reply = self._ask({**request, "percentile": percentile, "runs": runs})
        return reply["reason"] if "reason" in reply else reply["medians"]

    def kernel_seconds(
        self, name: str, kernels: int, rounds: int, threads: int | None = None
    ) -> list[float] | str:
        """The median seconds of each kernel of an instrumented program; or the reason why there are none.

        ``kernels``: how many kernels it calls. ``threads``: how many threads run it; None: all.
        """
        request = {"ask": "kernels", "name": name, "kernels": kernels, "rounds": rounds, "threads": threads}
        reply = self._ask(request)
        return reply["reason"] if "reason" in reply else reply["seconds"]

    def first_call(self, name: str, inputs: Sequence[np.ndarray]) -> FirstResults | str:
        """The first call of a program with ``inputs``; or why it does not run with them."""
        written = Path(self._folder.name) / "results.npz"
        request = {"ask": "first_call", "name": name, "inputs": self._stored(inputs)}
        reply = self._ask({**request, "results": str(written)})
        if "reason" in reply:
            return str(reply["reason"])
        with np.load(written) as stored:
            results = [stored[key] for key in stored.files]
        return FirstResults(float(reply["seconds"]), reply["kernels"], float(reply["compiling"]), results)

    def later_calls(self, name: str, inputs: Sequence[np.ndarray]) -> float | str:
        """The median seconds of more calls of a program with ``inputs``; or a reason."""
        reply = self._ask({"ask": "later_calls", "name": name, "inputs": self._stored(inputs)})
        return reply["reason"] if "reason" in reply else float(reply["seconds"])

    def _stored(self, inputs: Sequence[np.ndarray]) -> str:
        path = Path(self._folder.name) / "inputs_between.npz"
        store(path, [inputs])
        return str(path)

    def denormals(self, name: str) -> tuple[float, float] | str:
        """The seconds of a run as it is, and where denormal numbers count as zero; or a reason."""
        reply = self._ask({"ask": "denormals", "name": name})
        return reply["reason"] if "reason" in reply else (float(reply["seconds"]), float(reply["flushed"]))

    def error(self, name: str, reference: str) -> float | str:
        """The largest difference of outputs from those of ``reference``, over their range; or a reason."""
        reply = self._ask({"ask": "error", "name": name, "reference": reference})
        return reply["reason"] if "reason" in reply else float(reply["error"])

    def seconds_so_far(self, name: str) -> float | str:
        """The least seconds of a run so far, the first one included; or a reason."""
        reply = self._ask({"ask": "seconds_so_far", "name": name})
        return reply["reason"] if "reason" in reply else float(reply["seconds"])

    def once(self, names: Sequence[str]) -> list[float] | str:
        """The least seconds of a run of each program so far, after one more run of each; or a reason."""
        reply = self._ask({"ask": "once", "names": list(names)})
        return reply["reason"] if "reason" in reply else list(reply["seconds"])

    def rounding_errors(self, names: Sequence[str], seconds: float) -> list[float] | str:
        """The largest change of an output of each program, over its range, if its inputs change by rounding.

        Takes about ``seconds``; a reason if a program does not run.
        """
        reply = self._ask({"ask": "rounding_errors", "names": list(names), "seconds": seconds})
        return reply["reason"] if "reason" in reply else list(reply["errors"])

    def lost(self, name: str, reference: str, seconds: float) -> list[str] | str:
        """The exceptional values in inputs that ``reference`` passes on and the program does not; or a reason.

        After ``seconds`` no other value is tried; the first one, NaN, is in any case.
        """
        reply = self._ask({"ask": "lost", "name": name, "reference": reference, "seconds": seconds})
        return reply["reason"] if "reason" in reply else list(reply["lost"])

    def close(self) -> None:
        """End the worker and remove the files."""
        self._child.close()
        self._folder.cleanup()

    def __enter__(self) -> ProgramWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self, name: str, path: Path) -> str | None:
        self._dropped.pop(name, None)
        reply = self._ask({"ask": "load", "name": name, "path": str(path)})
        if "reason" not in reply:
            self._paths[name] = path
            self._loaded_by[name] = self._child.starts
            return None
        path.unlink(missing_ok=True)
        return str(reply["reason"])

    def _ask(self, request: dict[str, Any]) -> Reply:
        """The reply of a worker that has loaded all programs."""
        for _ in range(_ATTEMPTS):
            if not self._load_again():
                break
            named = (request.get("name"), request.get("reference"), *request.get("names", ()))
            if reasons := [self._dropped[name] for name in named if name in self._dropped]:
                return {"reason": reasons[0]}
            before = self._child.starts
            reply = self._child.ask(request)
            if self._child.starts == before:
                return reply
        return {"reason": "the process of the programs ends again and again"}

    def _load_again(self) -> bool:
        """Load what the process has not loaded, and drop a program that cannot be loaded.

        False if processes end too often before all programs are loaded.
        """
        self._child.start()
        begin = self._child.starts
        while left := [name for name in self._paths if self._loaded_by[name] != self._child.starts]:
            if self._child.starts > begin + len(self._loaded_by) + _ATTEMPTS:
                return False
            name = left[0]
            reply = self._child.ask({"ask": "load", "name": name, "path": str(self._paths[name])})
            if "reason" in reply:
                self._paths.pop(name).unlink()
                self._dropped[name] = str(reply["reason"])
            else:
                self._loaded_by[name] = self._child.starts
            self._child.start()
        return True
