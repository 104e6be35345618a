"""CudaBench: kernels run and are timed on the first CUDA device."""

from __future__ import annotations

import fcntl
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import tvm
from tvm import relax
from tvm.target import Target

from ...cost.method import Method
from ...database.rows import FailureKind
from ...machine.device import ClockWatch
from ...runtime import cuda, cuda_timing
from ...runtime.timing import Runner, Timed
from ..built_kernel import BuiltKernel
from ..guard import WROTE_INPUT, WROTE_OUTSIDE, output_types
from ..kernels import activation_arrays
from ..process_state import Spoilt
from ..refusal import Refusal, Refused
from ..transitions import Begin

T = TypeVar("T")

_NATIVE = "collage."
"""The prefix of the kinds of our own modules."""

_RED_ZONE = 4096
"""Bytes behind each output that a kernel must not change."""

_POISON = 0xFF
"""All bits of outputs and red zones are set before a run, so floats are NaN."""


class CudaBench:
    """Kernels run on a stream of the device.

    If CUDA keeps reporting an error, the process ends, since no other kernel can run.
    """

    tries_nan = True
    compiles_ahead = False

    def __init__(self, lock: str | None = None) -> None:
        """``lock``: a file that is locked while the device is used, since other processes would disturb the timing."""
        self._lock = lock
        self._device = tvm.cuda(0)
        with self._alone():  # making a context keeps the device busy
            cuda.load()
            self._on_device(np.zeros(1, np.float32))

    def settled(self, run: Callable[[], T]) -> T:
        try:
            with self._alone():
                result = run()
                self._device.sync()
            return result
        except Exception as error:
            self._raise_if_sticky(error)
            raise

    def prepare(self, module: Any) -> None:
        """Libraries may compile for a first run: here they do it without holding the lock of the device."""
        if str(module.kind).startswith(_NATIVE):
            module.inspect_source("implementations")

    def after_building(self) -> None:
        """Compilers for the device change nothing here."""

    def after_timing(self) -> None:
        try:
            self._device.sync()
        except Exception as error:
            raise Spoilt(f"the device failed while kernels were timed: {error}") from error

    def outputs_of(
        self,
        kernel: Any,
        inputs: Sequence[np.ndarray],
        constants: Sequence[tvm.runtime.Tensor],
        func: relax.Function,
        at_end: bool,
    ) -> list[np.ndarray]:
        """As on the CPU; a red zone behind each output stands for the guard page. Inputs are compared afterwards."""
        del at_end
        types = output_types(func)
        whole = [self._poisoned(shape, dtype) for shape, dtype in types]
        outputs = [
            memory._create_view(shape, dtype) for memory, (shape, dtype) in zip(whole, types, strict=True)
        ]
        read = [*inputs, *(constant.numpy() for constant in constants)]
        given = [self._on_device(array) for array in read]
        kernel(*given, *outputs)
        self._device.sync()
        if not all((memory.numpy()[-_RED_ZONE:] == _POISON).all() for memory in whole):
            raise Refused(Refusal(WROTE_OUTSIDE, FailureKind.WROTE_OUTSIDE))
        pairs = ((_bits(tensor.numpy()), _bits(array)) for tensor, array in zip(given, read, strict=True))
        if not all(np.array_equal(after, before) for after, before in pairs):
            raise Refused(Refusal(WROTE_INPUT, FailureKind.WROTE_OUTSIDE))
        return [output.numpy() for output in outputs]

    def runners_of(
        self, func: relax.Function, inputs: Sequence[np.ndarray], built: Mapping[str, BuiltKernel]
    ) -> dict[str, Runner]:
        with self._alone():
            activations = [self._on_device(array) for array in activation_arrays(func, inputs)]
            outputs = [tvm.runtime.empty(shape, dtype, self._device) for shape, dtype in output_types(func)]
            constants = {key: self._all_on_device(made.constants) for key, made in built.items()}
            self._device.sync()
        return {
            key: Runner(made.kernel, [*activations, *constants[key], *outputs], activations)
            for key, made in built.items()
        }

    def time_in_turns(self, runners: Sequence[Runner], method: Method, evict_bytes: int) -> list[Timed]:
        with self._alone():
            return cuda_timing.time_in_turns(
                runners,
                percentile=method.percentile,
                confidence=method.confidence,
                tolerance=method.tolerance,
                min_runs=method.min_runs,
                max_runs=method.max_runs,
                max_seconds=method.max_seconds,
                evict_bytes=evict_bytes,
            )

    def time_together(
        self, runners: Sequence[Runner], runs: int, evict_bytes: int, apart: bool
    ) -> list[Timed]:
        """On a device the caches are always evicted before each run."""
        del apart
        with self._alone():
            return cuda_timing.time_in_turns(
                runners, min_runs=runs, max_runs=runs, max_seconds=math.inf, evict_bytes=evict_bytes
            )

    def is_busy_since(self) -> Callable[[], bool]:
        watch = ClockWatch()
        return lambda: watch.was_slowed()

    def overheads(self, target: Target, backends: Sequence[str], begin: Begin) -> dict[str, Any]:
        """A launch costs what one more kernel adds to a CUDA graph. Values stay where they are: no transitions."""
        del target, begin
        with self._alone():
            seconds = cuda_timing.launch_seconds()
        return {"seconds": seconds, "launches": dict.fromkeys(backends, seconds), "transitions": {}}

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._lock is None:
            yield
            return
        with open(self._lock, "w") as file:  # noqa: PTH123  # its closing ends the lock
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _poisoned(self, shape: tuple[int, ...], dtype: str) -> Any:
        nbytes = math.prod(shape) * tvm.DataType(dtype).itemsize
        filled = np.full((nbytes + _RED_ZONE,), _POISON, np.uint8)
        return tvm.runtime.tensor(filled, self._device)

    def _on_device(self, array: np.ndarray) -> tvm.runtime.Tensor:
        return tvm.runtime.tensor(array, self._device)

    def _all_on_device(self, tensors: Sequence[tvm.runtime.Tensor]) -> list[tvm.runtime.Tensor]:
        return [tensor.copyto(self._device) for tensor in tensors]

    def _raise_if_sticky(self, error: Exception) -> None:
        """Raise Spoilt if the device reports its last error again."""
        try:
            self._device.sync()
            self._on_device(np.zeros(1, np.float32))
        except Exception:
            raise Spoilt(f"the device can run nothing more: {error}") from error


def _bits(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, which are comparable where it has NaN."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
