"""Tensors between guard pages, which detect a kernel that accesses memory outside of them."""

from unity_collage.runtime.libraries import load_base

from ..ffi import tvm_ffi


def guarded_tensor(shape: tuple[int, ...], dtype: str, at_end: bool) -> tvm_ffi.Tensor:
    """A tensor with memory that begins after an inaccessible page or, with ``at_end``, ends before one.

    A red zone fills the rest of the tensor's pages. All bits of the tensor are set, so floats are NaN. The data is
    aligned to 64 bytes, so with ``at_end`` there may be up to 63 bytes of red zone before the page.
    """
    load_base()
    return tvm_ffi.get_global_func("collage.runtime.guarded_tensor")(tvm_ffi.Shape(shape), dtype, at_end)


def protect(tensor: tvm_ffi.Tensor) -> None:
    """Let a write to this guarded tensor end the process from now on."""
    tvm_ffi.get_global_func("collage.runtime.protect_tensor")(tensor)


def is_red_zone_intact(tensor: tvm_ffi.Tensor) -> bool:
    """Whether the bytes between this guarded tensor and its guard pages are unchanged."""
    return bool(tvm_ffi.get_global_func("collage.runtime.intact_red_zone")(tensor))


def watch_guards(file: int, *, wrote_outside: str, read_outside: str, wrote_input: str) -> None:
    """Let a forbidden access to guarded memory write one of these texts to the descriptor ``file``.

    After that the process ends.
    """
    load_base()
    watch = tvm_ffi.get_global_func("collage.runtime.watch_guards")
    watch(file, wrote_outside, read_outside, wrote_input)
