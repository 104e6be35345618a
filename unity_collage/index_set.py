"""Index sets: sets of post-dfs indexes as Python ints (bit sets), bit ``i`` for index ``i``.

Union, intersection and difference are single operations on ints. Ints also hash quickly and compare by value, which
is all that enumeration and search need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

IndexSet = int
"""A set of small non-negative ints; ``|``, ``&``, ``& ~`` are union, intersection and difference."""

EMPTY: IndexSet = 0


def index_set(indexes: Iterable[int]) -> IndexSet:
    """The set of ``indexes``."""
    result = 0
    for index in indexes:
        result |= 1 << index
    return result


def first_n(count: int) -> IndexSet:
    """The set ``{0, ..., count - 1}``."""
    return (1 << count) - 1


def members(indexes: IndexSet) -> Iterator[int]:
    """The members in ascending order."""
    while indexes:
        lowest = indexes & -indexes
        yield lowest.bit_length() - 1
        indexes ^= lowest


def size(indexes: IndexSet) -> int:
    """The number of members."""
    return indexes.bit_count()


def first_inside(indexes: IndexSet) -> int:
    """The smallest member; ``indexes`` must not be empty."""
    return (indexes & -indexes).bit_length() - 1


def is_subset(small: IndexSet, large: IndexSet) -> bool:
    """Whether every member of ``small`` is one of ``large``."""
    return small & ~large == 0


def to_text(indexes: IndexSet) -> str:
    """``{1,3..7}``: a run of three or more members is written as a range."""
    runs: list[list[int]] = []
    for index in members(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = [f"{r[0]}..{r[-1]}" if len(r) > 2 else ",".join(map(str, r)) for r in runs]
    return "{" + ",".join(parts) + "}"
