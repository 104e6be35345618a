"""The memory that the C library has given to this process, for tests that compare it with what is stated."""

from __future__ import annotations

import ctypes

import pytest

counted = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library does not count"
)


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of the C library."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip


def in_use() -> int:
    """The bytes that the C library has given to this process and not got back."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return int(found.uordblks) + int(found.hblkhd)
