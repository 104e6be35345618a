"""Tensor layouts: strings such as "NCHW", "NHWC" or "NCHW4c", in which 4c is the inner part of C."""

from __future__ import annotations

import re

import numpy as np

_AXIS = re.compile(r"(\d*)([A-Za-z])")


def _letters(layout: str) -> str:
    return "".join(letter for _, letter in _AXIS.findall(layout))


def to_order(x: np.ndarray, layout: str, order: str) -> np.ndarray:
    """``x`` of ``layout`` with its axes in ``order``; inner parts are merged into their axis."""
    letters = _letters(layout)
    parts = [[letters.index(part) for part in (axis, axis.lower()) if part in letters] for axis in order]
    shape = [int(np.prod([x.shape[place] for place in places])) for places in parts]
    return x.transpose([place for places in parts for place in places]).reshape(shape)


def from_order(x: np.ndarray, order: str, layout: str) -> np.ndarray:
    """The inverse of :func:`to_order`: ``x`` with axes ``order`` in ``layout``."""
    factors = {letter.upper(): int(number) for number, letter in _AXIS.findall(layout) if number}
    names, shape = [], []
    for axis, size in zip(order, x.shape, strict=True):
        factor = factors.get(axis)
        names += [axis] if factor is None else [axis, axis.lower()]
        shape += [size] if factor is None else [size // factor, factor]
    return x.reshape(shape).transpose([names.index(letter) for letter in _letters(layout)])


def spatial(layout: str) -> str:
    """The letters of the spatial axes in the usual order: "W", "HW" or "DHW"."""
    return "".join(letter for letter in "DHW" if letter in layout)
