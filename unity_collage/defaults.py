"""What a compile takes where nothing else is asked for. Nothing is imported for it."""

from __future__ import annotations


class Usual(float):
    """A number that nobody has given: it counts as one that was asked for nowhere, even if they are equal."""


BUDGET_SECONDS = Usual(35.0)
"""The limit for measuring unless another one is given: with all else a compile takes about a minute."""

MOST_THREADS = 1024
"""The limit for the number of threads, whatever machine a program is for."""

FLOAT32 = "f32"
"""The precision that a model has."""

TF32 = "tf32"
"""The precision in which products round their operands to TensorFloat-32, which has 10 bits of mantissa."""

PRECISIONS: dict[str, str | None] = {FLOAT32: None, TF32: None, "bf16": "bfloat16", "f16": "float16"}
"""The type that products read and values are stored in, by the name of the precision; None: float32.

float16 and TensorFloat-32 are for GPUs. There float16 narrows whole networks, not only products and what is between.
"""

GPU_PRECISIONS = (TF32, "f16")
"""The precisions that only GPUs have."""
