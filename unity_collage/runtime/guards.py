"""Tensors between guard pages, which tell when a kernel leaves them."""

import tvm_ffi

from unity_collage.runtime.libraries import load_base


def guarded_tensor(shape: tuple[int, ...], dtype: str, at_end: bool) -> tvm_ffi.Tensor:
    """A tensor whose memory begins behind a page that nobody may touch or, ``at_end``, ends before one.

    Between an end that is not at a page and its page lies a red zone. The bytes are all ones, which floats read as
    NaN. The data is aligned to 64 bytes, so ``at_end`` may leave 63 of them between the two.
    """
    load_base()
    return tvm_ffi.get_global_func("collage.runtime.guarded_tensor")(tvm_ffi.Shape(shape), dtype, at_end)


def protect(tensor: tvm_ffi.Tensor) -> None:
    """Whoever writes to this guarded tensor from now on ends the process."""
    tvm_ffi.get_global_func("collage.runtime.protect_tensor")(tensor)


def is_red_zone_intact(tensor: tvm_ffi.Tensor) -> bool:
    """Whether nobody has written between this guarded tensor and its guard pages."""
    return bool(tvm_ffi.get_global_func("collage.runtime.intact_red_zone")(tensor))


def watch_guards(file: int, *, wrote_outside: str, read_outside: str, wrote_input: str) -> None:
    """Before a process ends because guarded memory was touched, one of these texts goes to the descriptor ``file``."""
    load_base()
    watch = tvm_ffi.get_global_func("collage.runtime.watch_guards")
    watch(file, wrote_outside, read_outside, wrote_input)
