"""Sessions of MNN, which has no C interface: its package for Python runs them.

A native module of the kind ``collage.mnn`` asks for the function of a model when that is first looked up. It passes
addresses, so tensors are copied once to MNN and back. MNN is imported with the first session.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from ..errors import first_line
from ..ffi import tvm_ffi
from ..scratch import Scratch

_STDOUT, _STDERR = 1, 2
_CODES = {"i": 0, "u": 1, "f": 2}
"""The codes of element types in DLPack, by numpy's kinds."""

_MODES = {"normal": 0, "high": 1, "low": 2}
"""The numbers of the modes of ``memory`` and ``power``: MNN ignores their names."""

_OPENING = Lock()
"""Held while a standard stream of the process is another one."""

_address_of = ctypes.pythonapi.PyCapsule_GetPointer
_address_of.restype, _address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class MnnTensor:
    """A tensor of a session, and memory for its values: dense, in the order of ONNX."""

    def __init__(self, mnn: Any, tensor: Any) -> None:
        import numpy as np  # MNN needs it

        kind, self.shape = tensor.getDataType(), tuple(tensor.getShape())
        dtypes = {mnn.Halide_Type_Float: np.float32, mnn.Halide_Type_Uint8: np.uint8}
        # MNN stores 64-bit integers in 32 bits.
        values = np.zeros(self.shape, dtypes.get(kind, np.int32))
        self.dtype, self.nbytes = values.dtype, values.nbytes
        self._tensor = tensor
        self._host = mnn.Tensor(self.shape, kind, values, mnn.Tensor_DimensionType_Caffe)
        self._address = _address_of(self._host.getHost(), None)

    def set(self, address: int) -> None:
        """Read the values at ``address``; :meth:`give` passes them to the session."""
        ctypes.memmove(self._address, address, self.nbytes)

    def give(self) -> None:
        """Copy the values to the session; raises RuntimeError where it has no memory for them."""
        if not self._tensor.copyFrom(self._host):
            raise RuntimeError("MNN: an input has no memory")

    def take(self, address: int) -> None:
        """Copy the values of the session to ``address``; raises RuntimeError where it has none."""
        if not self._tensor.copyToHostTensor(self._host):
            raise RuntimeError("MNN: a result has no memory")
        ctypes.memmove(address, self._address, self.nbytes)


class MnnSession:
    """A file in MNN's format as a session for a number of threads. One thread at a time may run it.

    ``shapes``: those of inputs by name, where the file leaves them open. In a fork of a process that has MNN's threads
    it has one. Raises RuntimeError if MNN does not take it.
    """

    def __init__(
        self,
        path: str | Path,
        settings: Mapping[str, str],
        threads: int,
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        threads = _threads_here(threads)
        mnn = import_module("MNN")
        modes = {key: _MODES[settings[key]] for key in ("memory", "power") if settings.get(key) in _MODES}
        config = {"backend": "CPU", "numThread": threads, **settings, **modes}
        try:
            self._network = mnn.Interpreter(str(path))
            self._session = self._network.createSession(config)
        except Exception as error:  # its errors have no common base class
            raise RuntimeError(f"MNN: {first_line(error)}") from error
        if self._session is None:
            raise RuntimeError("MNN: there is no session")
        if shapes is not None:
            for name, tensor in self._network.getSessionInputAll(self._session).items():
                self._network.resizeTensor(tensor, tuple(shapes[name]))
            self._network.resizeSession(self._session)
        self.inputs = self._tensors(mnn, self._network.getSessionInputAll(self._session))
        self.outputs = self._tensors(mnn, self._network.getSessionOutputAll(self._session))

    @staticmethod
    def _tensors(mnn: Any, found: Mapping[str, Any]) -> dict[str, MnnTensor]:
        return {name: MnnTensor(mnn, tensor) for name, tensor in found.items()}

    def run(self) -> None:
        """Run the model on the values of its inputs, which MNN's own memory keeps for one run only.

        Raises RuntimeError where MNN fails.
        """
        for tensor in self.inputs.values():
            tensor.give()
        if code := self._network.runSession(self._session):
            raise RuntimeError(f"MNN: the session does not run: error {code}")


def opened(
    address: int,
    nbytes: int,
    inputs: Iterable[str],
    outputs: Iterable[str],
    settings: Mapping[str, str],
    threads: int,
) -> Any:
    """A function that runs the model in MNN's format at ``address``.

    It takes three numbers for each input, and then for each output: the address, the size in bytes, and the code of the
    element type in DLPack. An output at address 0 is not wanted. Threads that call it at the same time run one after
    the other. Raises RuntimeError if MNN does not take the model, or names other inputs and outputs.
    """
    texts = {str(key): str(value) for key, value in settings.items()}
    model = _Model(partial(_session_at, address, nbytes, texts, threads))
    takes, gives = list(map(str, inputs)), list(map(str, outputs))
    session = model.here().session
    if unknown := sorted(session.inputs.keys() - set(takes)):
        raise RuntimeError(f"MNN: the converted model has an input {unknown[0]} of its own")
    if missing := sorted({*gives} - {*takes} - session.outputs.keys()):
        raise RuntimeError(f"MNN: the converted model has no result {missing[0]}")
    return tvm_ffi.convert_func(partial(_run, model, takes, gives))


class _Opened(NamedTuple):
    """An open model, the lock of the threads that run it, and the number of its process."""

    session: MnnSession
    lock: Lock
    process: int


class _Model:
    """A model that is open in the process that runs it, which may be a fork of the one that opened it."""

    def __init__(self, make: Callable[[], MnnSession]) -> None:
        """``make`` opens it."""
        self._make = make
        self._opened = self._open()

    def here(self) -> _Opened:
        """The model in this process."""
        if self._opened.process != os.getpid():
            self._opened = self._open()
        return self._opened

    def _open(self) -> _Opened:
        return _Opened(self._make(), Lock(), os.getpid())


def _session_at(address: int, nbytes: int, settings: Mapping[str, str], threads: int) -> MnnSession:
    with Scratch("mnn") as folder:
        path = Path(folder) / "model.mnn"
        path.write_bytes((ctypes.c_char * nbytes).from_address(address))
        with _OPENING, _messages():
            return MnnSession(path, settings, threads)


def _threads_here(threads: int) -> int:
    """``threads``, or 1 in a fork of the process that has MNN's threads: it would wait for them forever."""
    return threads if threads == 1 or os.getpid() == _process_with_threads() else 1


@cache
def _process_with_threads() -> int:
    """The process that opened the first model for several threads."""
    return os.getpid()


@contextmanager
def _messages() -> Iterator[None]:
    """Inside, what is printed goes to standard error: MNN prints what the processor has when it opens a model."""
    flush = ctypes.CDLL(None).fflush
    try:
        os.fstat(_STDERR)
        before = os.dup(_STDOUT)
    except OSError:  # the process has closed one of the two
        yield
        return
    try:
        flush(None)
        os.dup2(_STDERR, _STDOUT)
        yield
    finally:
        flush(None)
        os.dup2(before, _STDOUT)
        os.close(before)


def _run(model: _Model, inputs: Sequence[str], outputs: Sequence[str], *numbers: int) -> None:
    session, lock, _ = model.here()
    places = list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))
    given, wanted = places[: len(inputs)], places[len(inputs) :]
    with lock:
        for name, place in zip(inputs, given, strict=True):
            if name in session.inputs:  # the model may not read it
                session.inputs[name].set(_address(name, place, session.inputs[name]))
        session.run()
        for name, place in zip(outputs, wanted, strict=True):
            if place[0]:
                session.outputs[name].take(_address(name, place, session.outputs[name]))


def _address(name: str, place: tuple[int, int, int], tensor: MnnTensor) -> int:
    """The address of a tensor; raises ValueError if it has another type or size than MNN's."""
    address, nbytes, code = place
    if (nbytes, code) != (tensor.nbytes, _CODES[tensor.dtype.kind]):
        raise ValueError(f"MNN: {name} is {tensor.dtype} in the shape {tensor.shape}")
    return address
