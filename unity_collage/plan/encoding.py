"""Dataclasses as str, int, float, list and dict, and back.

What has its default value is left out. A field may have another name in the data: ``field(metadata={"key": ...})``.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from .candidate import Composite

T = TypeVar("T")


def encode(value: Any) -> Any:
    """Plain data that TVMScript and JSON can hold; keys of dicts become text."""
    return _with_text_keys(_converter().unstructure(value))


def decode(kind: type[T], data: Any) -> T:
    """The value of type ``kind`` that :func:`encode` made ``data`` of."""
    return _converter().structure(data, kind)


@cache
def _converter() -> Converter:
    made = Converter(omit_if_default=True, unstruct_collection_overrides={tuple: list})
    made.register_structure_hook_factory(
        is_dataclass, lambda kind: make_dict_structure_fn(kind, made, **_names(kind))
    )
    made.register_unstructure_hook_factory(
        is_dataclass,
        lambda kind: make_dict_unstructure_fn(kind, made, _cattrs_omit_if_default=True, **_names(kind)),
    )
    # A named tuple's types are text where annotations are postponed, which cattrs does not resolve.
    made.register_structure_hook(Composite, lambda data, _: Composite(str(data[0]), tuple(map(int, data[1]))))
    made.register_unstructure_hook(Composite, lambda part: [part[0], list(part[1])])
    return made


def _names(kind: Any) -> Any:
    """The keys of the fields that have another name in the data."""
    return {
        item.name: override(rename=item.metadata["key"]) for item in fields(kind) if "key" in item.metadata
    }


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_text_keys(item) for item in value]
    return value
