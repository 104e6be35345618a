"""The options of a compile that can change its program, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

from ..runtime.custom_op_libraries import CustomOpLibrary


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOptions:
    """The options of one compile; equal ones make equal programs of a model."""

    target: str
    """As it was given; empty: the host."""
    backends: Sequence[str] | None
    shapes: Mapping[str, Any] | None
    dims: Mapping[str, int] | None
    precision: str
    allow_winograd: bool
    search_layouts: bool
    measure: bool
    method: str
    """How kernels are timed, with the percentile."""
    packs: bool
    unlimited: bool
    """Whether there is no limit for measuring: then the comparison of programs has none either."""
    explain: bool
    eager: bool = True
    """Whether PyTorch may compute all of a model of PyTorch."""
    refine: str = ""
    """The settings of a refinement; empty: programs are compared as by default."""
    memory: str = ""
    """The limit in bytes and the weight of memory; empty: no goal for memory."""
    custom_op_libraries: Sequence[CustomOpLibrary] = ()
    """With the digests of their files."""
    limits: str = ""
    """The limits of the process that measures, where they are not the usual ones."""

    def text(self) -> str | None:
        """The options as one text; None where they cannot be told apart by one."""
        try:
            sizes = {"shapes": self.shapes or None, "dims": self.dims or None}
            return json.dumps(_plain({**asdict(self), **sizes}), sort_keys=True)
        except TypeError:
            return None


def _plain(value: Any) -> Any:
    """``value`` as JSON data; raises TypeError if a part of it would be lost."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    raise TypeError(f"{type(value).__name__} is not plain data")
