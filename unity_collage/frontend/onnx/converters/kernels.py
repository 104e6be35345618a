"""Kernels of several steps, for operators that are not a formula of a single element: sorting, scattering, selecting.

Each is one TE operation that a function writes with TVM's builder of statements. The steps run in order, in one thread.
Buffers are read and written by the index of an element in row-major order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .runtime_shapes import as_int64

Result = tuple[Sequence[Any], str]
"""The shape and the element type of a result."""


def kernel(
    name: str, operands: Sequence[te.Tensor], made: Sequence[Result], steps: Callable[..., None]
) -> list[te.Tensor]:
    """The results of ``steps(*operands, *results)``; its arguments are flat buffers."""

    def body(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> Any:
        with IRBuilder() as builder:
            # A builder makes one statement; the body of a loop may have any number.
            with T.serial(0, 1):
                steps(*(T.buffer_proxy(buffer) for buffer in (*ins, *outs)))
            return builder.get()

    shapes, dtypes = [list(shape) for shape, _ in made], [dtype for _, dtype in made]
    extern: Any = te.extern  # type: ignore[attr-defined]
    found = extern(shapes, list(operands), body, name=name, dtype=dtypes)
    return [found] if isinstance(found, te.Tensor) else list(found)


def loop(count: Any) -> Any:
    """``with loop(n) as i``: the statements for i from 0 to n - 1, one after the other."""
    return T.serial(0, as_int64(count))


def while_(condition: Any) -> Any:
    """``with while_(condition)``: the statements again and again as long as the condition holds."""
    return T.While(condition)


@contextmanager
def when(condition: Any) -> Iterator[None]:
    """``with when(condition)``: the statements only if the condition holds."""
    with T.If(condition), T.Then():
        yield


def choose(condition: Any, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
    """The statements of one of two functions."""
    with T.If(condition):
        with T.Then():
            then()
        with T.Else():
            otherwise()


def store(buffer: Any, index: Any, value: Any) -> None:
    """Write an element; a number becomes one of int64."""
    buffer[index] = as_int64(value) if isinstance(value, int) else value


def increment(buffer: Any, index: Any) -> None:
    """Count one more in a buffer of int64."""
    buffer[index] = buffer[index] + as_int64(1)
