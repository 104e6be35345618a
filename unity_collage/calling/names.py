"""Assigns the values of a call to inputs: by position, by name, or as one dict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import CollageError
from .signature import shown

_MOST_SHOWN = 8


class InputNames:
    """The names of a program's inputs, and the places of their values.

    A name is accepted as the model writes it. Its form as an identifier of Python is accepted too, unless another
    input has this name or the same identifier.
    """

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        found, forms = Counter(names), Counter(map(identifier, names))
        self._places = {
            form: place
            for place, form in enumerate(map(identifier, names))
            if forms[form] == 1 and form not in found
        }
        self._places |= {name: place for place, name in enumerate(names) if found[name] == 1}

    def in_order(self, args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        """The values in the order of the inputs; raises CollageError where one is missing, unknown or given twice.

        Lists and tuples stand for their elements where there are as many inputs: a module of PyTorch may take them.
        """
        if len(args) == 1 and not named and isinstance(args[0], Mapping):
            args, named = (), args[0]
        if not named:
            values = args if len(args) == len(self.names) else list(_leaves(args))
            if len(values) == len(self.names):
                return values
            raise CollageError(f"{len(args)} inputs given; the model takes {self}")
        return self._by_name(args, named)

    def _by_name(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        if len(args) + len(named) > len(self.names):
            raise CollageError(f"{len(args) + len(named)} inputs given; the model takes {self}")
        values = dict(enumerate(args))
        for name, value in named.items():
            place = self._places.get(name)
            if place is None:
                raise CollageError(self._why_unknown(name))
            if place in values:
                raise CollageError(f"input {shown(self.names[place])} is given twice")
            values[place] = value
        if len(values) < len(self.names):
            missing = next(name for place, name in enumerate(self.names) if place not in values)
            raise CollageError(f"input {shown(missing)} is missing; the model takes {self}")
        return [values[place] for place in range(len(values))]

    def _why_unknown(self, name: object) -> str:
        if not isinstance(name, str):
            return f"inputs are named by text, not by {name!r}; the model takes {self}"
        meant = [other for other in self.names if name in (other, identifier(other))]
        if len(meant) > 1:
            return f"{shown(name)} may be any of {', '.join(map(shown, meant))}: give it by position or its own name"
        return f"there is no input {shown(name)}; the model takes {self}"

    def __str__(self) -> str:
        more = len(self.names) - _MOST_SHOWN
        listed = ", ".join(map(shown, self.names[:_MOST_SHOWN]))
        return f"{len(self.names)}: {listed}" + (f" and {more} more" if more > 0 else "")


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    """The elements of lists and tuples, however deep; other values as they are."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _leaves(value)
        else:
            yield value


def identifier(name: str) -> str:
    """The name of an input as an identifier of Python and Relax: ``gpu_0/data`` -> ``gpu_0_data``."""
    return re.sub(r"\W", "_", name)
