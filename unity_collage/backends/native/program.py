"""Programs of the native runtime: what the lowerings make and the C++ executors read.

While a lowering works on a step, its views name Relax values; in a program they name buffers by number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np


def item_size(dtype: str) -> int:
    """Bytes of an element; bool is a byte, and numpy does not know bfloat16."""
    return {"bool": 1, "bfloat16": 2}.get(dtype) or np.dtype(dtype).itemsize


@dataclass(frozen=True, slots=True)
class View:
    """A buffer seen with the logical dimensions of a primitive. Strides and offset count elements."""

    buffer: Any
    """The Relax value (or :class:`Scratch`) while lowering, the number of the buffer in a program."""
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    offset: int = 0

    def to_json(self) -> dict[str, Any]:
        """As the executors read it: there the offset counts bytes."""
        return {
            "buffer": self.buffer,
            "dims": list(self.dims),
            "strides": list(self.strides),
            "dtype": self.dtype,
            "offset": self.offset * item_size(self.dtype),
        }


@dataclass(frozen=True, eq=False, slots=True)
class Scratch:
    """A tensor between the primitives of one operator; two are never equal."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class PostOp:
    """Work on a result before it is stored: ``eltwise`` with its two numbers, or ``binary`` with an operand."""

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
class Step:
    """One primitive with its arguments, attributes and post-operations.

    ``before`` are the steps whose scratch results it reads: operators that need two primitives have one.
    """

    primitive: str
    args: tuple[tuple[str, View], ...]
    attrs: tuple[tuple[str, Any], ...] = ()
    post_ops: tuple[PostOp, ...] = ()
    before: tuple[Step, ...] = ()

    def arg(self, name: str) -> View | None:
        return dict(self.args).get(name)

    def attr(self, name: str) -> Any:
        return dict(self.attrs).get(name)

    @property
    def result(self) -> View:
        """The view that the primitive writes: ``dst``, or ``c`` of a gemm."""
        views = dict(self.args)
        return views["dst"] if "dst" in views else views["c"]

    def with_arg(self, name: str, view: View) -> Step:
        return replace(self, args=tuple({**dict(self.args), name: view}.items()))

    def with_attrs(self, **attrs: Any) -> Step:
        return replace(self, attrs=tuple({**dict(self.attrs), **attrs}.items()))

    def with_result(self, view: View) -> Step:
        return self.with_arg("dst" if self.arg("dst") is not None else "c", view)

    def then(self, *post_ops: PostOp) -> Step:
        return replace(self, post_ops=self.post_ops + post_ops)

    def views(self) -> Iterator[View]:
        """All views, those of ``before`` first and the post-operations' last."""
        for earlier in self.before:
            yield from earlier.views()
        yield from (view for _, view in self.args)
        yield from (post.arg for post in self.post_ops if post.arg is not None)

    def map_views(self, change: Callable[[View], View]) -> Step:
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
    """Memory of a program, ``nbytes`` long."""

    nbytes: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConstantData:
    """Where in the blob the content of a buffer lies."""

    buffer: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Program:
    """One native function: inputs and outputs are numbers of buffers, in the order of the call's arguments."""

    name: str
    buffers: Sequence[Buffer]
    inputs: Sequence[int]
    outputs: Sequence[int]
    constants: Sequence[ConstantData]
    steps: Sequence[Step]
    threads: int | None = None
    """So many of the pool's threads run it at most; None: all of them, as far as it is worth it."""

    def to_json(self) -> dict[str, Any]:
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


def programs_json(programs: Sequence[Program]) -> str:
    return json.dumps({"programs": [p.to_json() for p in programs]}, allow_nan=False, separators=(",", ":"))


@dataclass(slots=True)
class Blob:
    """The constants of a module, each distinct content once, aligned to 64 bytes."""

    content: bytearray = field(default_factory=bytearray)
    offsets: dict[bytes, int] = field(default_factory=dict)
    """By a hash of the content: weights are large, and a second copy of them is one too many."""

    def add(self, data: np.ndarray) -> int:
        """The offset of ``data``, flat bytes, in the blob."""
        key = hashlib.blake2b(data.data, digest_size=16).digest()
        if key not in self.offsets:
            self.content.extend(bytes(-len(self.content) % 64))
            self.offsets[key] = len(self.content)
            self.content.extend(data)
        return self.offsets[key]
