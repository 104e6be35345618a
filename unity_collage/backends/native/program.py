"""Programs of the native runtime: the lowerings make them, and the C++ executors read them as JSON.

The views of a step name Relax values during lowering, and numbers of buffers in a finished program.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np

from ...graph.free_sizes import Size, SizePlace, Symbol


def item_size(dtype: str) -> int:
    """Bytes of an element. numpy does not know bfloat16; a bool is one byte."""
    return {"bool": 1, "bfloat16": 2}.get(dtype) or np.dtype(dtype).itemsize


@dataclass(frozen=True, slots=True)
class View:
    """A buffer with the logical dimensions of a primitive. Strides and offset count elements."""

    buffer: Any
    """During lowering the Relax value or :class:`ScratchTensor`; in a program the number of the buffer."""
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    offset: int = 0

    def to_json(self) -> dict[str, Any]:
        """The view as the executors read it, with the offset in bytes."""
        return {
            "buffer": self.buffer,
            "dims": list(self.dims),
            "strides": list(self.strides),
            "dtype": self.dtype,
            "offset": self.offset * item_size(self.dtype),
        }


@dataclass(frozen=True, eq=False, slots=True)
class ScratchTensor:
    """A tensor between the primitives of one operator. It is equal only to itself."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class PostOp:
    """An operation on a result before it is stored: ``eltwise`` with ``alpha`` and ``beta``, or ``binary`` with
    ``arg``."""

    kind: str
    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    arg: View | None = None

    def to_json(self) -> dict[str, Any]:
        if self.arg is not None:
            return {"kind": self.kind, "algorithm": self.algorithm, "arg": self.arg.to_json()}
        return {"kind": self.kind, "algorithm": self.algorithm, "alpha": self.alpha, "beta": self.beta}


@dataclass(frozen=True, slots=True)
class NativeStep:
    """One primitive with its arguments, attributes and post-operations.

    ``before`` has steps with scratch results that this step reads, for operators that need several primitives.
    """

    primitive: str
    args: tuple[tuple[str, View], ...]
    attrs: tuple[tuple[str, Any], ...] = ()
    post_ops: tuple[PostOp, ...] = ()
    before: tuple[NativeStep, ...] = ()

    def arg(self, name: str) -> View | None:
        return dict(self.args).get(name)

    def attr(self, name: str) -> Any:
        return dict(self.attrs).get(name)

    @property
    def result(self) -> View:
        """The view that the primitive writes: ``dst``, or ``c`` for a gemm."""
        views = dict(self.args)
        return views["dst"] if "dst" in views else views["c"]

    def with_arg(self, name: str, view: View) -> NativeStep:
        return replace(self, args=tuple({**dict(self.args), name: view}.items()))

    def with_attrs(self, **attrs: Any) -> NativeStep:
        return replace(self, attrs=tuple({**dict(self.attrs), **attrs}.items()))

    def with_result(self, view: View) -> NativeStep:
        return self.with_arg("dst" if self.arg("dst") is not None else "c", view)

    def then(self, *post_ops: PostOp) -> NativeStep:
        return replace(self, post_ops=self.post_ops + post_ops)

    def views(self) -> Iterator[View]:
        """All views: first those of ``before``, last those of the post-operations."""
        for earlier in self.before:
            yield from earlier.views()
        yield from (view for _, view in self.args)
        yield from (post.arg for post in self.post_ops if post.arg is not None)

    def map_views(self, change: Callable[[View], View]) -> NativeStep:
        return replace(
            self,
            args=tuple((name, change(view)) for name, view in self.args),
            post_ops=tuple(p if p.arg is None else replace(p, arg=change(p.arg)) for p in self.post_ops),
            before=tuple(earlier.map_views(change) for earlier in self.before),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "primitive": self.primitive,
            "args": {name: view.to_json() for name, view in self.args},
            "attrs": {name: list(v) if isinstance(v, tuple) else v for name, v in self.attrs},
            "post_ops": [post.to_json() for post in self.post_ops],
        }


@dataclass(frozen=True, slots=True)
class Buffer:
    """A block of memory of a program."""

    nbytes: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConstantData:
    """The place of a buffer's content in the blob."""

    buffer: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class NativeProgram:
    """One native function. Inputs and outputs are numbers of buffers, in the order of the call's arguments."""

    name: str
    buffers: Sequence[Buffer]
    inputs: Sequence[int]
    outputs: Sequence[int]
    constants: Sequence[ConstantData]
    steps: Sequence[NativeStep]
    threads: int | None = None
    """The most threads of the pool that run it; if None, the executor decides, up to all."""
    sizes: Mapping[Symbol, SizePlace] = field(default_factory=dict["Symbol", "SizePlace"])
    """The free sizes, and the arguments that determine them: those of ``inputs``, then those of ``outputs``."""

    def to_json(self) -> dict[str, Any]:
        text = self._to_json()
        if not self.sizes:
            return text
        names = {symbol: f"{symbol[0]}.{number}" for number, symbol in enumerate(self.sizes)}
        places = {names[symbol]: asdict(place) for symbol, place in self.sizes.items()}
        return {**_with_names(text, names), "sizes": places}

    def _to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "buffers": [{"nbytes": b.nbytes, "dtype": b.dtype, "shape": list(b.shape)} for b in self.buffers],
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "constants": [
                {"buffer": c.buffer, "offset": c.offset, "nbytes": c.nbytes} for c in self.constants
            ],
            "steps": [step.to_json() for step in self.steps],
            **({} if self.threads is None else {"threads": self.threads}),
        }


def _with_names(value: Any, names: Mapping[Symbol, str]) -> Any:
    """``value`` with free sizes as the executors read them."""
    if isinstance(value, Size):
        return value.to_json(names)
    if isinstance(value, dict):
        return {key: _with_names(item, names) for key, item in cast("dict[str, Any]", value).items()}
    return (
        [_with_names(item, names) for item in cast("list[Any]", value)] if isinstance(value, list) else value
    )


def programs_json(programs: Sequence[NativeProgram]) -> str:
    return json.dumps({"programs": [p.to_json() for p in programs]}, allow_nan=False, separators=(",", ":"))


_ALIGNED = 64
"""The alignment of constants and of a blob, in bytes."""


@dataclass(slots=True)
class Blob:
    """The constants of a module, each distinct content stored once, aligned to 64 bytes."""

    offsets: dict[bytes, int] = field(default_factory=dict)
    """By a hash of the content, in the order of the pieces."""
    _pieces: list[np.ndarray] = field(default_factory=list)
    _nbytes: int = 0

    def add(self, data: np.ndarray) -> int:
        """The offset in the blob of ``data``, an array of bytes, which is added if it is new."""
        key = hashlib.blake2b(data.data, digest_size=16).digest()
        if key not in self.offsets:
            begin = self.offsets[key] = self._nbytes + -self._nbytes % _ALIGNED
            self._pieces.append(data)
            self._nbytes = begin + data.nbytes
        return self.offsets[key]

    def taken(self) -> np.ndarray:
        """The bytes, in memory that starts at a multiple of 64, for a module that keeps it; they are taken out."""
        memory = np.zeros(self._nbytes + _ALIGNED, np.uint8)
        first = -memory.ctypes.data % _ALIGNED
        content = memory[first : first + self._nbytes]
        for begin, piece in zip(self.offsets.values(), self._pieces, strict=True):
            content[begin : begin + piece.nbytes] = piece
        self._pieces.clear()
        return content
