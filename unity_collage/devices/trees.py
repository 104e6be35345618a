"""Trees of leaves: one leaf for each tensor of a type, in the nesting of its tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tvm import ir, relax

Tree: TypeAlias = "int | tuple[Tree, ...] | None"
"""A leaf, the fields of a tuple, or None for a value without device: a shape, number, object or function."""

Device = Callable[[int], relax.VDevice]
"""The VDevice of a leaf."""


def tree_of(ty: ir.Type, leaf: Callable[[str, relax.TensorType], int], name: str) -> Tree:
    """A tree for ``ty``; ``leaf`` makes each leaf of its name: ``name``, or ``name.1`` for a field."""
    if isinstance(ty, relax.TensorType):
        return leaf(name, ty)
    if isinstance(ty, relax.TupleType):
        return tuple(tree_of(part, leaf, f"{name}.{i}") for i, part in enumerate(ty.fields))
    return None


def leaves(tree: Tree) -> Iterator[int]:
    """The leaves of a tree, from left to right."""
    if isinstance(tree, int):
        yield tree
    elif tree is not None:
        for part in tree:
            yield from leaves(part)


def pairs(first: Tree, second: Tree) -> Iterator[tuple[int, int]]:
    """The leaves at equal places of two trees."""
    if isinstance(first, int) and isinstance(second, int):
        yield first, second
    elif isinstance(first, tuple) and isinstance(second, tuple):
        for a, b in zip(first, second, strict=False):
            yield from pairs(a, b)


def tensors(ty: ir.Type) -> Iterator[relax.TensorType]:
    """The tensor types in ``ty``, from left to right."""
    if isinstance(ty, relax.TensorType):
        yield ty
    elif isinstance(ty, relax.TupleType):
        for part in ty.fields:
            yield from tensors(part)


def typed(ty: ir.Type, tree: Tree, device: Device) -> ir.Type:
    """``ty`` with the VDevice of each leaf."""
    if isinstance(ty, relax.TensorType) and isinstance(tree, int):
        return on(ty, device(tree))
    if isinstance(ty, relax.TupleType) and isinstance(tree, tuple):
        parts = zip(ty.fields, tree, strict=True)
        return relax.TupleType([typed(part, inner, device) for part, inner in parts])
    return ty


def on(ty: relax.TensorType, device: relax.VDevice | None) -> relax.TensorType:
    """A tensor type on another VDevice."""
    shape: Any = ty.shape
    return relax.TensorType(shape, ty.dtype, device, -1 if shape is not None else ty.ndim)
