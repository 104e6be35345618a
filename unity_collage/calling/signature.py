"""What a program takes and returns: names, types and shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Dim = int | str | None
"""An extent: a number, the name of a symbolic dimension, or None where nothing is known about it."""

_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor."""

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    """None where not even the number of dimensions is known."""
    device: str = ""
    """Where it is in a program of several devices, such as ``cpu:1``; empty: on the program's first device."""
    multiples: tuple[tuple[int, int], ...] = ()
    """Axes with extents that are multiples of a number, with that number."""

    def __str__(self) -> str:
        text = tensor_text(self.dtype, self.shape)
        return f"{text} on {self.device}" if self.device else text


@dataclass(frozen=True, slots=True)
class TupleSpec:
    """A tuple of values."""

    name: str
    fields: tuple[Spec, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))})"


@dataclass(frozen=True, slots=True)
class OtherSpec:
    """Another type of Relax, such as a shape; its value is passed on as it is."""

    name: str
    kind: str

    def __str__(self) -> str:
        return self.kind


Spec = TensorSpec | TupleSpec | OtherSpec


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and results of a program, in order."""

    inputs: tuple[Spec, ...]
    results: tuple[Spec, ...]
    shared: tuple[int, ...] = ()
    """The numbers of results that may share the memory of an input, a constant or an earlier result."""

    def __str__(self) -> str:
        return f"{_listed(self.inputs)} -> {_listed(self.results)}"

    def to_json(self) -> dict[str, Any]:
        """As data that :meth:`from_json` reads."""
        return {
            "inputs": [_encoded(spec) for spec in self.inputs],
            "results": [_encoded(spec) for spec in self.results],
            "shared": list(self.shared),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Signature:
        """Read what :meth:`to_json` wrote."""
        inputs, results = (tuple(map(_decoded, data[key])) for key in ("inputs", "results"))
        return Signature(inputs, results, tuple(data["shared"]))


def tensor_text(dtype: str, shape: Sequence[Dim] | None) -> str:
    """A type as people read it: ``float32 (n, 6)``."""
    if shape is None:
        return f"{dtype} of any rank"
    dims = ["?" if dim is None else str(dim) for dim in shape]
    return f"{dtype} ({', '.join(dims)}{',' if len(dims) == 1 else ''})"


def shown(name: str) -> str:
    """A name for a message: quoted, and cut in its middle if it is long."""
    half = _LONGEST_NAME // 2
    return repr(name if len(name) <= _LONGEST_NAME else f"{name[:half]}...{name[-half:]}")


def _listed(specs: Sequence[Spec]) -> str:
    return ", ".join(f"{shown(spec.name)}: {spec}" for spec in specs) or "nothing"


def _encoded(spec: Spec) -> dict[str, Any]:
    if isinstance(spec, TensorSpec):
        shape = None if spec.shape is None else list(spec.shape)
        place = {"device": spec.device} if spec.device else {}
        multiples = {"multiples": [list(pair) for pair in spec.multiples]} if spec.multiples else {}
        return {"name": spec.name, "dtype": spec.dtype, "shape": shape, **place, **multiples}
    if isinstance(spec, TupleSpec):
        return {"name": spec.name, "fields": [_encoded(field) for field in spec.fields]}
    return {"name": spec.name, "kind": spec.kind}


def _decoded(data: Mapping[str, Any]) -> Spec:
    if "dtype" in data:
        shape = data["shape"]
        fixed = None if shape is None else tuple(shape)
        multiples = tuple((axis, factor) for axis, factor in data.get("multiples", ()))
        return TensorSpec(data["name"], data["dtype"], fixed, data.get("device", ""), multiples)
    if "fields" in data:
        return TupleSpec(data["name"], tuple(map(_decoded, data["fields"])))
    return OtherSpec(data["name"], data["kind"])
