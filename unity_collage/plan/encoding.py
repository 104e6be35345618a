"""Encodes dataclasses as str, int, float, list and dict, and decodes them.

Fields with their default value are left out. A field may have another name in the data:
``field(metadata={"key": ...})``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar

from cattrs import Converter, SimpleStructureHook
from cattrs.dispatch import UnstructureHook
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from .composite_part import CompositePart

T = TypeVar("T")

_Plain: TypeAlias = "str | int | float | list[_Plain] | dict[Any, _Plain] | None"


def encode(value: Any) -> Any:
    """Plain data that TVMScript and JSON can hold; keys of dicts become text."""
    return _with_text_keys(_converter().unstructure(value))


def decode(kind: type[T], data: Any) -> T:
    """The value of type ``kind`` from the ``data`` of :func:`encode`."""
    return _converter().structure(data, kind)


@cache
def _converter() -> Converter:
    made = Converter(omit_if_default=True, unstruct_collection_overrides={tuple: list})

    def structure(kind: type[Any]) -> SimpleStructureHook[Mapping[str, Any], Any]:
        return make_dict_structure_fn(kind, made, **_names(kind))

    def unstructure(kind: type[Any]) -> UnstructureHook:
        return make_dict_unstructure_fn(kind, made, _cattrs_omit_if_default=True, **_names(kind))

    made.register_structure_hook_factory(is_dataclass, structure)
    made.register_unstructure_hook_factory(is_dataclass, unstructure)
    # cattrs does not resolve the postponed annotations of a named tuple.
    made.register_structure_hook(
        CompositePart, lambda data, _: CompositePart(str(data[0]), tuple(map(int, data[1])))
    )
    made.register_unstructure_hook(CompositePart, lambda part: [part[0], list(part[1])])
    return made


def _names(kind: Any) -> Any:
    """Overrides for the fields that have another name in the data."""
    return {
        item.name: override(rename=item.metadata["key"]) for item in fields(kind) if "key" in item.metadata
    }


def _with_text_keys(value: _Plain) -> _Plain:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_text_keys(item) for item in value]
    return value
