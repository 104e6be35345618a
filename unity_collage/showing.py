"""The values of this package in notebooks, which ``unity_collage.show`` formats, and as data for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from typing import Any, cast


class Shown:
    """Base class of values that notebooks show.

    Package ``report``, which makes the tables, is above this one in the layers, so it is imported by name when a
    value is shown.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        import unity_collage

        return unity_collage.show(self)._repr_html_()


def plain(value: Any) -> Any:
    """Dataclasses and enumerations as JSON has them; numbers that it lacks, NaN and infinity, are null."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("list[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
