"""Prints a rule as the tree of the rules that it consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, cast


class Printed:
    """A part of a rule tree: ``print`` shows the tree below it."""

    __slots__ = ()

    def __str__(self) -> str:
        return rule_tree(self)


def rule_tree(rule: Any) -> str:
    """``rule`` and the rules inside it, one line each, indented by two spaces for each level.

    A line has the name of the class and the options that differ from their defaults.
    """
    return "\n".join(_lines(rule, 0))


def _lines(rule: Any, level: int) -> Iterator[str]:
    if not is_dataclass(rule):
        yield "  " * level + type(rule).__name__
        return
    below = [part for f in fields(rule) for part in _parts(getattr(rule, f.name))]
    options = (_option(f, getattr(rule, f.name)) for f in fields(rule))
    shown = ", ".join(option for option in options if option is not None)
    yield "  " * level + type(rule).__name__ + (f"({shown})" if shown or not below else "")
    for part in below:
        yield from _lines(part, level + 1)


def _parts(value: Any) -> tuple[Any, ...]:
    """The rules in one field. Rules that do not derive from :class:`Printed` are recognised by their ``apply``."""
    values = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)
    return tuple(v for v in values if isinstance(v, Printed) or hasattr(v, "apply"))


def _option(f: Field[Any], value: Any) -> str | None:
    default = f.default_factory() if f.default_factory is not MISSING else f.default
    if value == default or _parts(value):
        return None
    return f"{f.name}={_text(value)}"


def _text(value: Any) -> str:
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(str, cast("frozenset[Any]", value)))) + "}"
    if is_dataclass(value):
        options = (_option(f, getattr(value, f.name)) for f in fields(value))
        return f"{type(value).__name__}({', '.join(option for option in options if option is not None)})"
    return _name(value) if callable(value) else str(getattr(value, "name", None) or repr(value))


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__
