"""The algorithm that a function asks for: a ``Composite`` label of it, or of a function inside it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tvm import relax

from ...annotations import PARTS, plain
from ...defaults import TF32
from .lowering import NotLowerable

ROUNDING = f"{TF32}_"
"""Prefix of the names of rules for kernels that round the operands of float32 products to TensorFloat-32."""


def algorithm_label(func: relax.Function, name: str, algorithms: Collection[str]) -> str:
    """The one label of ``func`` that is among ``algorithms``; raises NotLowerable if there is none or more than one.

    ``name`` is the function's name in the message.
    """
    labels = [label for label in labels_of(func) if label in algorithms]
    if len(labels) != 1:
        raise NotLowerable(
            f"{name}: it has {len(labels)} composite functions with a label of {', '.join(algorithms)}"
        )
    return labels[0]


def algorithm_labels(func: relax.Function, name: str, algorithms: Collection[str]) -> tuple[str, ...]:
    """The different labels of ``func`` that are among ``algorithms``; raises NotLowerable if there are none."""
    labels = dict.fromkeys(label for label in labels_of(func) if label in algorithms)
    if not labels:
        raise NotLowerable(f"{name}: it has 0 composite functions with a label of {', '.join(algorithms)}")
    return tuple(labels)


def labels_of(func: relax.Function) -> Iterator[str]:
    """The ``Composite`` attributes of a function and of the functions inside it, or those that its parts will get."""
    attrs = func.attrs or {}
    if "Composite" in attrs:
        yield str(attrs["Composite"])
    yield from (part["label"] for part in plain(attrs[PARTS])) if PARTS in attrs else ()
    for block in func.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Function):
                yield from labels_of(binding.value)


def rounds_to_tf32(func: relax.Function) -> bool:
    """Whether the kernel of ``func`` may round the operands of products to TensorFloat-32, by its label."""
    return any(label.partition(".")[2].startswith(ROUNDING) for label in labels_of(func))
