"""The signature of a module's ``main``, and which of its results share memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import ml_dtypes  # noqa: F401  # numpy knows bfloat16 and 8-bit floats from here
import numpy as np
from tvm import ir, relax, tirx
from tvm.ir import IRModule

from ..graph.devices import place_of
from ..graph.multiples import multiples_of
from .sharing import shared_results
from .signature import Dim, OtherSpec, Signature, Spec, TensorSpec, TupleSpec

_TYPED_NUMBER = re.compile(r"T\.\w+\((-?\d+)\)")
"""A number as TVMScript writes it: ``T.int64(1)``."""


def signature_of(
    imported: IRModule, final: IRModule, inputs: Sequence[str] | None, results: Sequence[str] | None
) -> Signature:
    """The signature of a model's ``main`` after import; ``final`` is the module that is built.

    ``inputs`` and ``results`` are the model's own names. Without them inputs have the names of the parameters, and
    results have their number.
    """
    main, symbols = imported["main"], _Symbols()
    names = inputs or [param.name for param in main.params]
    casts = multiples_of(main)
    takes = tuple(
        _with_multiples(_spec(name, param.ty, symbols), casts[param])
        for name, param in zip(names, main.params, strict=True)
    )
    types = list(main.ret_ty.fields) if isinstance(main.ret_ty, relax.TupleType) else [main.ret_ty]
    if results is None or len(results) != len(types):
        results = [str(number) for number in range(len(types))]
    gives = tuple(_spec(name, ty, symbols) for name, ty in zip(results, types, strict=True))
    return Signature(takes, gives, shared_results(final))


class _Symbols:
    """The names of symbolic dimensions: each variable has a different name."""

    def __init__(self) -> None:
        self._names: dict[tirx.Var, str] = {}

    def dim(self, extent: ir.Expr) -> Dim:
        """An extent as a signature has it. Sums and the like are named by their text, if that names each variable."""
        if isinstance(extent, tirx.IntImm):
            return int(extent.value)
        variables = tirx.analysis.undefined_vars(extent)
        for var in variables:
            self._name(var)
        if isinstance(extent, tirx.Var):
            return self._names[extent]
        text = _TYPED_NUMBER.sub(r"\1", str(extent))
        return f"({text})" if all(self._names[var] == var.name for var in variables) else None

    def _name(self, var: tirx.Var) -> None:
        if var not in self._names:
            taken, name = set(self._names.values()), str(var.name)
            while name in taken:
                name += "'"
            self._names[var] = name


def _spec(name: str, ty: ir.Type, symbols: _Symbols) -> Spec:
    if isinstance(ty, relax.TensorType) and _is_known(ty.dtype):
        place = "" if ty.vdevice is None else place_of(ty.vdevice)
        return TensorSpec(name, str(ty.dtype), _shape(ty, symbols), place)
    if isinstance(ty, relax.TupleType):
        fields = tuple(_spec(f"{name}[{number}]", field, symbols) for number, field in enumerate(ty.fields))
        return TupleSpec(name, fields)
    return OtherSpec(name, str(ty))


def _with_multiples(spec: Spec, of_axis: Mapping[int, int]) -> Spec:
    """``spec`` of a parameter, with the extents that the function assumes to be multiples."""
    found = tuple(of_axis.items())
    return replace(spec, multiples=found) if isinstance(spec, TensorSpec) and found else spec


def _is_known(dtype: object) -> bool:
    """Whether numpy has a type: others, such as the handles of TVM, have no arrays."""
    try:
        return dtype is not None and np.dtype(str(dtype)).itemsize > 0
    except TypeError:
        return False


def _shape(ty: relax.TensorType, symbols: _Symbols) -> tuple[Dim, ...] | None:
    if isinstance(ty.shape, relax.ShapeExpr):
        return tuple(map(symbols.dim, ty.shape.values))
    return None if ty.ndim < 0 else (None,) * ty.ndim
