"""Tensors of PyTorch as those of TVM and back, without copies where the memory allows that; and PyTorch's threads.

This file does not import PyTorch: its functions get the module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ..ffi import tvm_ffi

_ALIGNMENT = 64
"""In bytes; kernels read whole vectors."""


class _Process:
    """What is known of this process."""

    lacks_threads = False
    """Whether it is forked from one that had imported PyTorch, which may wait for threads that are not here."""


def _note_fork() -> None:
    _Process.lacks_threads = sys.modules.get("torch") is not None


os.register_at_fork(after_in_child=_note_fork)


@contextmanager
def on_threads(torch: Any, count: int) -> Iterator[None]:
    """Inside, PyTorch's operators use ``count`` threads, the calling one among them; only that one after a fork."""
    count = 1 if _Process.lacks_threads else count
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def exactly(torch: Any) -> AbstractContextManager[Any]:
    """Inside, PyTorch's operators on the CPU keep their types, also where the caller uses ``torch.autocast``."""
    return torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else nullcontext()


def exported(tensor: Any) -> Any:
    """A tensor as one of TVM; an empty one has memory of TVM, which does not take torch's strides of it."""
    if tensor.numel():
        return tvm_ffi.from_dlpack(tensor)
    allocate = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")
    dtype = tvm_ffi.dtype(str(tensor.dtype).removeprefix("torch."))
    return allocate(tvm_ffi.Shape(tuple(tensor.shape)), dtype, tvm_ffi.device("cpu"), None)


def places(tensors: Iterable[Any]) -> set[int]:
    """Where the memory of these tensors begins."""
    return {each.untyped_storage().data_ptr() for each in tensors}


def own(torch: Any, found: Sequence[Any], taken: set[int]) -> list[Any]:
    """Results that are dense, real and aligned, and share no memory with operands, since kernels reuse that.

    ``taken``: where the memory begins that no result may have.
    """
    results = []
    for each in found:
        tensor = each.detach().resolve_conj().resolve_neg()
        tensor = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).contiguous()
        place = tensor.untyped_storage().data_ptr()
        if place in taken or tensor.data_ptr() % _ALIGNMENT:
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        taken.add(tensor.untyped_storage().data_ptr())
        results.append(tensor)
    return results
