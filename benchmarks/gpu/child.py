"""The process that measures: jobs as JSON on standard input, events as lines of JSON on standard output.

A process of its own, because an error of the device ends all work of its process on that device.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from .failures import CaptureFailed, reason_of
from .jobs import OURS, RESULT, WARM_UP, Job, Settings

T = TypeVar("T")
Tell = Callable[[dict[str, Any]], None]

REFERENCE, MODEL, TIMING = "reference", "model", "timing"
"""Steps that are not competitors."""
BROKEN = 70
"""The exit code where the device takes no more work of this process, or a capture failed: a new one goes on."""


class Failed(Exception):
    """A step failed; the text is the reason."""


class Measurement:
    """One job, step by step."""

    def __init__(self, job: Job, settings: Settings, tell: Tell) -> None:
        self._job, self._settings, self._tell = job, settings, tell

    def row(self) -> dict[str, Any]:
        """The row of results; what failed has a ``reason`` in it."""
        from .competitors import Competitors, relative_error
        from .models import network

        row = self._job.row()
        try:
            made = self._step(MODEL, lambda: network(self._job.model, self._job.batch))
            competitors = Competitors(made, self._job, self._settings)
            expected = self._step(REFERENCE, competitors.reference)
        except Failed as error:
            return row | {"reason": str(error)}
        results: dict[str, dict[str, Any]] = {n: {"reason": why} for n, why in self._job.failed.items()}
        running = {}
        for name in self._job.competitors:
            if name in results:
                continue
            try:
                running[name] = self._step(name, lambda name=name: competitors.made(name))
                error = self._step(
                    f"{name}{RESULT}", lambda name=name: _error(running[name], expected, relative_error)
                )
                results[name] = {**running[name].facts, "error": error}
            except Failed as error:
                running.pop(name, None)
                results[name] = {"reason": str(error)}
        results |= self._warmed_up(running)
        results |= self._timed(running, results)
        return row | {"results": {name: results[name] for name in self._job.competitors}}

    def _warmed_up(self, running: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """The reasons of those that fail when all have been made, which are removed from ``running``."""
        failed: dict[str, dict[str, Any]] = {}
        for name, competitor in running.items():
            try:
                self._step(f"{name}{WARM_UP}", lambda run=competitor.run: self._calls(run))
            except Failed as error:
                failed[name] = {"reason": str(error)}
        for name in failed:
            del running[name]
        return failed

    def _calls(self, run: Callable[[], Any]) -> None:
        for _ in range(self._settings.warm_up):
            run()

    def _timed(
        self, running: dict[str, Any], results: dict[str, dict[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        from .timing import in_turns

        runs = {name: each.run for name, each in running.items()}
        try:
            found = self._step(
                TIMING,
                lambda: in_turns(runs, self._settings.calls, self._settings.rounds, self._settings.device),
            )
        except Failed as error:
            return {name: results[name] | {"reason": f"not timed: {error}"} for name in running}
        return {name: with_plan_error(name, results[name] | times) for name, times in found.items()}

    def _step(self, name: str, run: Callable[[], T]) -> T:
        self._tell({"event": "begin", "step": name})
        try:
            found = run()
            _wait(self._settings.device)
        except Exception as error:  # a competitor fails in its own way, and its error becomes the reason
            traceback.print_exc()
            reason = reason_of(error)
            self._tell({"event": "failed", "step": name, "reason": reason})
            if isinstance(error, CaptureFailed) or not _takes_work(self._settings.device):
                sys.stderr.flush()
                os._exit(BROKEN)
            raise Failed(reason) from error
        self._tell({"event": "end", "step": name})
        return found


def with_plan_error(name: str, result: dict[str, Any]) -> dict[str, Any]:
    """A result of ours with how much longer a call takes than the costs of its plan say, as a part of these."""
    plan = result.get("plan_seconds")
    if not plan or not name.startswith(OURS):
        return result
    return result | {"additive_error": result["seconds"] / plan - 1}


def _error(competitor: Any, expected: Any, relative_error: Callable[[Any, Any], float]) -> float:
    error = relative_error(competitor.result(), expected)
    if error != error:
        raise ValueError("the result has numbers that are not finite")
    return error


def _takes_work(device: str) -> bool:
    try:
        _wait(device)
    except Exception:  # an error of the device, or a stream that is still captured
        return False
    return True


def _wait(device: str) -> None:
    if device != "cpu":
        import torch  # pyright: ignore[reportMissingImports]

        torch.cuda.synchronize()


def _clean(device: str) -> None:
    """Free what the last job has left."""
    import torch  # pyright: ignore[reportMissingImports]

    torch._dynamo.reset()
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()


def main() -> None:
    """Runs all jobs of standard input."""
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an event
    asked = json.loads(sys.stdin.read())
    settings = Settings(**asked["settings"])

    def tell(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    tell({"event": "begin", "step": "imports"})
    from . import competitors  # noqa: F401  # its imports take a while

    tell({"event": "end", "step": "imports"})
    for data in asked["jobs"]:
        row = Measurement(Job.from_json(data), settings, tell).row()
        _clean(settings.device)
        tell({"event": "row", "row": row})
    events.close()
    sys.stderr.flush()
    os._exit(0)  # libraries for GPUs crash at exit now and then


if __name__ == "__main__":
    main()
