"""CudaCost: costs measured on the CUDA device, in a worker process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import ClassVar

from tvm.target import Target

from ...backends.native.labels import rounds_to_tf32
from ...cost.bounds import work_for
from ...cost.fingerprint import backend_version, cost_fingerprint
from ...cost.model import Capability, Workload
from ...machine.caches import rounded
from ...machine.device import device
from ...machine.environment import usable_cores
from ...plan.costs import Cost
from ...target import cuda_target, current_target
from ..client import Worker, WorkerClient
from ..kernel_costs import KernelCosts
from ..questions import Client, Fingerprints
from .workers import Workers, most

_MODULE = "unity_collage.measure.cuda.worker"

_TF32_RATE = 8
"""How many products of TensorFloat-32 take as long as one of float32: by NVIDIA's data sheets 8 on the A100, and 7.4
on the H100.
"""


@dataclass(frozen=True)
class CudaCost(KernelCosts):
    """Kernels are timed by events of the device, in worker processes that start when the first costs are measured.

    Costs are not confirmed: the device does nothing else, and kernels for one computation are timed in turns anyway.
    """

    _session: Workers = field(default_factory=Workers, init=False, repr=False, compare=False)

    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.COMPARE})

    def evict_bytes(self, working_set: int) -> int:
        """0 if a network of ``working_set`` bytes stays in the second-level cache, else at most twice that cache.

        It has two halves, and data that multiprocessors of both read is in both. ResNet-50 with 51 MB of weights, and
        costs of warm ones, took 1.22 times its plan on a device with 60 MB.
        """
        whole = device().l2_bytes
        return 0 if working_set <= whole // 2 else min(rounded(working_set), rounded(2 * whole))

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        """Lower bounds of costs in seconds, by key: a roofline of what the device can do by its data sheet."""
        return {workload.key: _lower_bound(workload) for workload in workloads}

    def target(self) -> Target:
        return cuda_target()

    def _bounds_if_known(self, workloads: Sequence[Workload]) -> dict[str, float]:
        return self.lower_bounds(workloads)

    def _client(self) -> Client:
        return self._session.first(self._made)

    def _made(self) -> WorkerClient:
        # No kernel runs on the processor, so references may use all of it.
        threads = {"OPENBLAS_NUM_THREADS": str(max(1, len(usable_cores()) // most()))}
        worker = Worker(_MODULE, {"lock": str(_lock())}, threads)
        return WorkerClient(0, self.method, self.timeout_seconds, self.memory_bytes, worker)

    def _spread(
        self, groups: Sequence[list[Workload]], work: Callable[[Client, list[Workload]], dict[str, Cost]]
    ) -> Iterable[dict[str, Cost]]:
        """The result of ``work`` for each group: several workers build and check, and one at a time uses the device."""
        return self._session.spread(self._made, groups, work)

    def _fingerprints(self) -> Fingerprints:
        target = current_target()
        return Fingerprints(
            target, lambda backend: cost_fingerprint(backend, target, self.method), backend_version
        )


def _lock() -> Path:
    """The file that is locked while the device is used. A user cannot open the file of another one."""
    return Path(gettempdir(), f"unity_collage.cuda.{os.getuid()}.lock")


def _lower_bound(workload: Workload) -> float:
    work = work_for(workload)
    flops = work.flops / (_TF32_RATE if rounds_to_tf32(workload.func) else 1)
    moved = work.weight_bytes + work.read_bytes + work.written_bytes
    return max(device().compute_seconds(flops), device().memory_seconds(moved))
