"""The inputs of an ONNX model: their types, and sizes that a user fixes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from tvm import ir, relax, tirx

from ...errors import ModelError, with_names
from ...graph.multiples import as_multiple
from ..sizes import Shapes
from .arrays import dtype_of
from .names import safe
from .values import Dim

_UNNAMED = frozenset({"", "?", "-1", "none", "None", "unk", "unknown"})
"""The names that exporters write for a dimension without a name."""


@dataclass(slots=True)
class InputSizes:
    """The sizes of a model's inputs: numbers where they are fixed, else symbolic sizes."""

    fixed: dict[str, int] = field(default_factory=dict)
    """The sizes that a user gives for dimensions, by name."""
    made: dict[str, tirx.Var] = field(default_factory=dict)
    bare: frozenset[str] = frozenset()
    """The names that are a whole dimension of some input: these can be read from shapes when the program runs."""

    def of(self, text: str) -> Dim:
        """The dimension of a ``text``: a name, or an expression of names and numbers."""
        if text in self.fixed:
            return self.fixed[text]
        tree = None if text in self.bare else _parsed(text)
        if tree is None:
            return self._symbol(text)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if not names <= self.bare | self.fixed.keys():
            return self._symbol(text)
        return _computed(tree.body, self)

    def _symbol(self, text: str) -> tirx.Var:
        if text not in self.made:
            taken = {var.name for var in self.made.values()}
            name, number = safe(text), 1
            while name in taken:
                name, number = f"{safe(text)}_{number}", number + 1
            self.made[text] = tirx.Var(name, "int64")
        return self.made[text]


def _parsed(text: str) -> ast.Expression | None:
    """The tree of a sum, difference, product or quotient of names and numbers; None for other texts."""
    if re.search(r"\b\d+[A-Za-z_]", text):  # a name such as 1_2, which Python reads as 12
        return None
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    allowed = (ast.Expression, ast.BinOp, ast.Name, ast.Load, *_OPERATIONS)
    for node in ast.walk(tree):
        is_number = isinstance(node, ast.Constant) and type(node.value) is int
        if not is_number and not isinstance(node, allowed):
            return None
    return tree


_OPERATIONS = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Div: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _computed(node: ast.expr, sizes: InputSizes) -> Dim:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int)
        return node.value
    if isinstance(node, ast.Name):
        return sizes.of(node.id)
    assert isinstance(node, ast.BinOp)
    return _OPERATIONS[type(node.op)](_computed(node.left, sizes), _computed(node.right, sizes))


def parameters(graph: onnx.GraphProto, shapes: Shapes, dims: Mapping[str, int]) -> dict[str, relax.Var]:
    """The parameters of ``main`` for the inputs of a graph, by name.

    ``shapes`` fixes inputs or dimensions, ``dims`` dimensions only. Raises ModelError for unknown names, for sizes
    that contradict each other or the file, and for inputs without a shape.
    """
    weights = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in weights}
    declared = {name: list(_declared(value)) if _has_shape(value) else None for name, value in inputs.items()}
    sizes = _fixed(declared, shapes, dims)
    made: dict[str, relax.Var] = {}
    taken: set[str] = set()
    for name, value in inputs.items():
        dtype = _dtype(value)
        given = shapes.get(name)
        if given is not None and not isinstance(given, int):
            shape: list[Dim] = [int(size) for size in given]
        else:
            texts = declared[name]
            if texts is None:
                given = f"shapes={{{name!r}: (1, ...)}} or --shape {name}=1,..."
                raise ModelError(f"the input {name!r} has no shape; give it with {given}")
            shape = [text if isinstance(text, int) else sizes.of(text) for text in texts]
        made[name] = relax.Var(_unique(safe(name), taken), relax.TensorType(shape, dtype))
    return made


def as_multiples(graph: onnx.GraphProto, params: Mapping[str, relax.Var]) -> dict[str, relax.TensorType]:
    """The types of the parameters with sizes that are multiples, by the name of the input.

    The size ``n`` of a dimension ``32*rows`` is ``n // 32 * 32`` in them. So the sizes that follow from it are
    multiples too, and equal ones look equal, such as ``(n - 2) // 2 + 1`` and ``(n - 2) // 32 * 16 + 16``.
    """
    found: dict[str, relax.TensorType] = {}
    for value in graph.input:
        param = params.get(value.name)
        ty = None if param is None else param.ty
        if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
            continue
        texts, dims = list(_declared(value)) if _has_shape(value) else [], list(ty.shape.values)
        sizes = [_as_multiple(dim, text) for dim, text in zip(dims, texts, strict=False)]
        if any(size is not dim for size, dim in zip(sizes, dims, strict=False)):
            found[value.name] = relax.TensorType(sizes, ty.dtype)
    return found


def _as_multiple(dim: ir.Expr, text: int | str) -> ir.Expr:
    """``dim`` as a multiple of the number in ``text``, if ``dim`` is a single free size and ``text`` is such a
    multiple.
    """
    if not isinstance(dim, tirx.Var):
        return dim
    tree = _parsed(text) if isinstance(text, str) else None
    product = None if tree is None else tree.body
    if not isinstance(product, ast.BinOp) or not isinstance(product.op, ast.Mult):
        return dim
    numbers = [side.value for side in (product.left, product.right) if isinstance(side, ast.Constant)]
    names = [side for side in (product.left, product.right) if isinstance(side, ast.Name)]
    if len(numbers) != 1 or len(names) != 1 or not isinstance(numbers[0], int) or numbers[0] < 2:
        return dim
    return as_multiple(dim, numbers[0])


def declared_type(value: onnx.ValueInfoProto) -> tuple[str, tuple[int | str, ...] | None]:
    """The type and the dimensions of an input in the file, None where it has no shape; raises ModelError."""
    return _dtype(value), tuple(_declared(value)) if _has_shape(value) else None


def names_in(graph: onnx.GraphProto) -> tuple[list[str], list[str]]:
    """The names of the inputs of a graph, and those of their open dimensions."""
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    dims = [dim for value in inputs if _has_shape(value) for dim in _declared(value) if isinstance(dim, str)]
    return [value.name for value in inputs], list(dict.fromkeys(dims))


def _unique(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(found)
    return found


def _has_shape(value: onnx.ValueInfoProto) -> bool:
    return value.type.tensor_type.HasField("shape")


def _declared(value: onnx.ValueInfoProto) -> Iterator[int | str]:
    """The dimensions of an input in the file: numbers, or names; dimensions without a name get one of their own.

    A first size of 0, before others, is open, as for ONNX Runtime: exporters write it for a batch of any size. So are
    sizes below 0.
    """
    dims = value.type.tensor_type.shape.dim
    for axis, dim in enumerate(dims):
        is_batch = axis == 0 and len(dims) > 1
        if dim.HasField("dim_value") and dim.dim_value >= is_batch:
            yield dim.dim_value
        elif dim.dim_param.strip() in _UNNAMED or not dim.HasField("dim_param"):
            yield f"{value.name}_{axis}"
        else:
            yield dim.dim_param.strip()


def _dtype(value: onnx.ValueInfoProto) -> str:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        what = {"sequence_type": "a sequence", "optional_type": "an optional value", "map_type": "a map"}
        what["sparse_tensor_type"] = "a sparse tensor"
        raise ModelError(
            f"the input {value.name!r} is {what.get(kind or '', 'of no type')}, which is not supported"
        )
    if not value.type.tensor_type.elem_type:
        raise ModelError(f"the input {value.name!r} has no element type")
    try:
        return dtype_of(value.type.tensor_type.elem_type)
    except ModelError as error:
        raise ModelError(f"the input {value.name!r}: {error}") from error


def _fixed(
    declared: Mapping[str, Sequence[int | str] | None], shapes: Shapes, dims: Mapping[str, int]
) -> InputSizes:
    """The sizes that ``shapes`` and ``dims`` fix, by name; what an input fixes holds wherever the name occurs."""
    bare = {text for texts in declared.values() for text in texts or () if isinstance(text, str)}
    within = {name for text in bare for name in re.findall(r"[A-Za-z_]\w*", text)}
    sizes = InputSizes(bare=frozenset(text for text in bare if _is_name(text)))
    for name, size in dims.items():
        _fix_dimension(sizes, name, size, bare | within, declared)
    for name, size in shapes.items():
        if isinstance(size, int):
            if name in declared:
                known = " and a dimension of this name" if name in bare else ""
                raise ModelError(
                    f"{name!r} is an input{known}: give an input all its sizes, such as {name}=1,{size}"
                )
            _fix_dimension(sizes, name, size, bare | within, declared)
        elif name not in declared:
            raise _unknown("input", name, list(declared), declared)
        else:
            _fix_input(sizes, name, [int(item) for item in size], declared[name])
    return sizes


def _is_name(text: str) -> bool:
    tree = _parsed(text)
    return tree is None or isinstance(tree.body, ast.Name)


def _fix_dimension(
    sizes: InputSizes,
    name: str,
    size: int,
    known: set[str],
    declared: Mapping[str, Sequence[int | str] | None],
) -> None:
    if name not in known:
        raise _unknown("dimension", name, sorted(known), declared)
    if size < 0:
        raise ModelError(f"the size {size} of the dimension {name!r} is negative")
    if sizes.fixed.setdefault(name, size) != size:
        raise ModelError(f"the dimension {name!r} is given as {sizes.fixed[name]} and as {size}")


def _unknown(
    what: str, name: str, known: Sequence[str], declared: Mapping[str, Sequence[int | str] | None]
) -> ModelError:
    """The error for an unknown name, with the one that it is close to."""
    text = with_names(f"the model has no {what} {name!r}", name, known, 0)
    there = _what_there_is(declared)
    return ModelError(f"{text} {there[0].upper()}{there[1:]}" if text.endswith("?") else f"{text}; {there}")


def _fix_input(sizes: InputSizes, name: str, given: list[int], texts: Sequence[int | str] | None) -> None:
    if any(size < 0 for size in given):
        raise ModelError(f"the shape {_listed(given)} of the input {name!r} has a negative size")
    if texts is None:
        return
    if len(given) != len(texts):
        raise ModelError(
            f"the input {name!r} has {len(texts)} dimensions ({_listed(texts)}), and {_listed(given)} is given"
        )
    for text, size in zip(texts, given, strict=True):
        if isinstance(text, int):
            if text != size:
                raise ModelError(
                    f"the input {name!r} is ({_listed(texts)}) in the file, and {_listed(given)} is given"
                )
        elif _is_name(text) and sizes.fixed.setdefault(text, size) != size:
            raise ModelError(f"the dimension {text!r} is given as {sizes.fixed[text]} and as {size}")


def _what_there_is(declared: Mapping[str, Sequence[int | str] | None]) -> str:
    shapes = (f"{name}({'?' if texts is None else _listed(texts)})" for name, texts in declared.items())
    return f"its inputs are {', '.join(shapes)}"


def _listed(sizes: Sequence[int | str]) -> str:
    return ", ".join(map(str, sizes))
