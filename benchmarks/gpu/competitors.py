"""The competitors for one network: each a function of no arguments that runs it and returns what it returned."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
import torch._inductor.config as inductor  # pyright: ignore[reportMissingImports]

import unity_collage as uc
from unity_collage.schedule.gpu import GPU_SCHEDULE_VERSION

from .failures import capturing
from .jobs import COMPILED, EAGER, Job, Settings, backends_of
from .models import Network
from .timing import Clock

Run = Callable[[], Any]


@dataclass
class Competitor:
    """A competitor: what is timed, and facts about it."""

    run: Run
    result: Callable[[], torch.Tensor]
    """One run, and its result on the device."""
    facts: dict[str, Any] = field(default_factory=dict)
    kept: tuple[Any, ...] = ()
    """What a graph reads without owning it: once freed, its memory goes back to the device at the next capture."""


class Competitors:
    """Makes the competitors of one job."""

    def __init__(self, network: Network, job: Job, settings: Settings) -> None:
        self._network, self._job, self._settings = network, job, settings
        self._inputs = [each.to(settings.device) for each in network.inputs]
        self._layout: torch.memory_format | None = None

    def reference(self) -> torch.Tensor:
        """The result of eager torch in float32 without TF32, on the device; torch then gets the job's precision."""
        set_precision(tf32=False)
        module = copy.deepcopy(self._network.module).to(self._settings.device)
        with torch.no_grad():
            found = module(*self._inputs).clone()
        set_precision(self._job.precision == "tf32")
        return found

    def made(self, name: str) -> Competitor:
        """The competitor ``name``; raises the error that makes it impossible."""
        if name == EAGER:
            return self._eager()
        if name == COMPILED:
            return self._compiled()
        return self._ours(backends_of(name))

    # Ours

    def _ours(self, backends: list[str] | None) -> Competitor:
        program, facts = self._compile(backends)
        with capturing(self._settings.device):  # the first call captures the program's kernels
            program(*self._inputs)
        return Competitor(lambda: program(*self._inputs), lambda: _tensor(program(*self._inputs)), facts)

    def _compile(self, backends: list[str] | None) -> tuple[uc.Program, dict[str, Any]]:
        begun = time.perf_counter()
        program = uc.compile(
            self._network.module,
            self._network.inputs,
            target=None if self._settings.device == "cpu" else self._settings.device,
            backends=backends,
            precision=self._job.precision,
            database=self._settings.database,
            budget_seconds=self._settings.budget_seconds,
            recompile=True,
            search_layouts=self._network.is_image and self._job.precision != "f16",
        )
        seconds = time.perf_counter() - begun
        plan = (program.plan or {}).get("main")
        kernels = Counter(kernel.backend for kernel in plan.kernels) if plan else Counter()
        return program, {
            "compile_seconds": seconds,
            "kernels": dict(sorted(kernels.items())),
            "plan_seconds": plan.seconds if plan else None,
            "remarks": list(plan.remarks) if plan else [],
            "schedules": GPU_SCHEDULE_VERSION,
        }

    # torch

    def _module(self) -> tuple[torch.nn.Module, list[torch.Tensor]]:
        """The module and its inputs in the precision, and in the layout in which eager torch is faster."""
        module = copy.deepcopy(self._network.module).to(self._settings.device)
        inputs = self._inputs
        if self._job.precision == "f16":
            module = module.half()
            inputs = [each.half() if each.is_floating_point() else each for each in inputs]
        if not self._network.is_image:
            return module, inputs
        if self._layout is None:
            times = {each: _seconds(*_in_layout(module, inputs, each), self._settings) for each in _LAYOUTS}
            self._layout = min(times, key=lambda each: times[each])
        return _in_layout(module, inputs, self._layout)

    def _eager(self) -> Competitor:
        module, inputs = self._module()
        if self._settings.device == "cpu":
            return _called(torch.no_grad()(lambda: module(*inputs)))
        with capturing(self._settings.device):
            return _captured(module, inputs)

    def _compiled(self) -> Competitor:
        module, inputs = self._module()
        begun = time.perf_counter()
        inductor.freezing = self._settings.freezing
        compiled = torch.compile(module, mode=self._settings.mode)
        run = torch.no_grad()(lambda: compiled(*inputs))
        with capturing(self._settings.device):
            for _ in range(4):  # the second call records, the third replays a graph
                run()
            if self._settings.device != "cpu":
                torch.cuda.synchronize()
        made = _called(run)
        made.facts["compile_seconds"] = time.perf_counter() - begun
        return made


def set_precision(tf32: bool) -> None:
    """Whether torch may use TF32, and the fastest algorithms of cuDNN."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True


def relative_error(found: torch.Tensor, reference: torch.Tensor) -> float:
    """The length of the difference over the length of the reference."""
    found, reference = found.double().reshape(-1), reference.double().reshape(-1)
    return float(torch.linalg.vector_norm(found - reference) / torch.linalg.vector_norm(reference))


_LAYOUTS = (torch.channels_last, torch.contiguous_format)


def _in_layout(
    module: torch.nn.Module, inputs: list[torch.Tensor], layout: torch.memory_format
) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    module.to(memory_format=layout)  # pyright: ignore[reportCallIssue]
    return module, [each.contiguous(memory_format=layout) for each in inputs]


def _seconds(module: torch.nn.Module, inputs: list[torch.Tensor], settings: Settings) -> float:
    """The time of a call once cuDNN has chosen its algorithms."""
    with torch.no_grad():
        for _ in range(3):
            module(*inputs)
        return Clock(settings.device).of(lambda: module(*inputs), 5)[1]


def _captured(module: torch.nn.Module, inputs: list[torch.Tensor]) -> Competitor:
    """The calls of a module in a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            module(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        found = module(*inputs)
    return Competitor(graph.replay, lambda: _replayed(graph, found), kept=(module, inputs))


def _called(run: Run) -> Competitor:
    return Competitor(run, lambda: run().clone())


def _replayed(graph: Any, found: torch.Tensor) -> torch.Tensor:
    graph.replay()
    torch.cuda.synchronize()
    return found.clone()


def _tensor(found: Any) -> torch.Tensor:
    return torch.from_dlpack(found[0] if isinstance(found, Sequence) else found)
