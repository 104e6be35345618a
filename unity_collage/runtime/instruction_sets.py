"""The instruction sets of this processor, as Linux lists them, by LLVM's names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_GENERATED = (
    "avx|amx|s?sse[0-9]|fma|f16c|bmi|lzcnt|popcnt|movbe|adx|gfni|vaes|vpclmul|xop|tbm|sha$|neon|sve|dotprod|fullfp16"
    "|bf16|i8mm"
)
"""Features of LLVM's processors that code generators use. The others are for system software, or only about speed."""

_WITHOUT_MARKS = str.maketrans("", "", "-._")

_OF_LLVM = {"abm": "lzcnt", "bmi1": "bmi", "pni": "sse3", "sha_ni": "sha"}
"""LLVM's names of features for which Linux has another name."""


def sets_in(features: Iterable[object]) -> set[str]:
    """The instruction sets among features of LLVM's processors."""
    return {str(feature) for feature in features if re.match(_GENERATED, str(feature))}


def unlisted(names: Iterable[str]) -> list[str]:
    """The instruction sets among ``names`` that Linux does not list for this processor, in order."""
    listed = _names_of_linux()
    return sorted(name for name in names if _plain(name) not in listed)


def lists_all() -> bool:
    """Whether Linux lists all instruction sets of this processor: it has other names for some of those of ARM."""
    return os.uname().machine == "x86_64" and bool(_names_of_linux())


@cache
def _names_of_linux() -> frozenset[str]:
    """The features that Linux reports for the processor, also by LLVM's names if they differ."""
    try:
        # Not all of it: a server lists hundreds of processors.
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            lines = (line.partition(":") for line in file)
            flags = next((v.split() for name, _, v in lines if name.strip() in ("flags", "Features")), [])
    except OSError:
        return frozenset()
    return frozenset(_plain(_OF_LLVM.get(flag, flag)) for flag in flags)


def _plain(name: str) -> str:
    """``avx512_vnni`` and ``sse4_1`` of Linux are ``avx512vnni`` and ``sse4.1`` of LLVM."""
    return name.translate(_WITHOUT_MARKS)
