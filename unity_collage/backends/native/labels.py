"""The algorithm that a function asks for: a ``Composite`` label of it, or of a function inside it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tvm import relax

from .lowering import NotLowerable


def algorithm_label(func: relax.Function, name: str, algorithms: Collection[str]) -> str:
    """The one label of ``func`` that is among ``algorithms``; raises NotLowerable if there is none or more than one.

    ``name`` is what the message calls the function.
    """
    labels = [label for label in _labels(func) if label in algorithms]
    if len(labels) != 1:
        raise NotLowerable(
            f"{name}: it has {len(labels)} composite functions with a label of {', '.join(algorithms)}"
        )
    return labels[0]


def algorithm_labels(func: relax.Function, name: str, algorithms: Collection[str]) -> tuple[str, ...]:
    """The different labels of ``func`` that are among ``algorithms``; raises NotLowerable if there are none."""
    labels = dict.fromkeys(label for label in _labels(func) if label in algorithms)
    if not labels:
        raise NotLowerable(f"{name}: it has 0 composite functions with a label of {', '.join(algorithms)}")
    return tuple(labels)


def _labels(func: relax.Function) -> Iterator[str]:
    """The ``Composite`` attributes of a function and of the functions inside it."""
    if "Composite" in (func.attrs or {}):
        yield str(func.attrs["Composite"])
    for block in func.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Function):
                yield from _labels(binding.value)
