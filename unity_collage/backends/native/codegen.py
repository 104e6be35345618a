"""From functions for a native library to one runtime module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.runtime import Module

from ... import runtime

Lower = Callable[[Sequence[relax.Function], Sequence[str]], tuple[str, np.ndarray]]
"""From functions and their symbols to the JSON of their programs and the blob of their constants."""


def native_codegen(library: str, lower: Lower) -> Callable[..., list[Module]]:
    """A code generator that lowers functions to programs of ``library``'s native executor."""

    def codegen(
        functions: Sequence[relax.Function], _options: Mapping[str, Any], _constants: Mapping[Any, str]
    ) -> list[Module]:
        runtime.load_code_generator(library)
        symbols = [str(func.attrs["global_symbol"]) for func in functions]
        programs, blob = lower(functions, symbols)
        create = tvm_ffi.get_global_func(f"collage.{library}.create")
        return [create(programs, blob)]

    return codegen
