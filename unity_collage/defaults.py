"""The defaults of a compile. This module imports nothing."""

from __future__ import annotations


class Usual(float):
    """A default number. An option with this value counts as not given, even if the user gives an equal number."""


BUDGET_SECONDS = Usual(25.0)
"""The default limit for measuring. A compile with it takes about a minute in all, or less."""

MOST_THREADS = 1024
"""The largest number of threads, for any machine."""

FLOAT32 = "f32"
"""The precision that a model has."""

TF32 = "tf32"
"""The precision in which products round their operands to TensorFloat-32, which has 10 bits of mantissa."""

PRECISIONS: dict[str, str | None] = {FLOAT32: None, TF32: None, "bf16": "bfloat16", "f16": "float16"}
"""The type that products read and values are stored in, by the name of the precision; None: float32.

float16 and TensorFloat-32 are for GPUs. There float16 is used in whole networks, not only for products and the values
between them.
"""

GPU_PRECISIONS = (TF32, "f16")
"""The precisions that only GPUs have."""

FILES_OF_TORCH = (".pt2", ".pt", ".pth", ".jit", ".torchscript")
"""The suffixes of files of PyTorch: exported programs (``.pt2``), and what may hold a module of TorchScript."""

UNROUNDED = {"session.qdq_matmulnbits_accuracy_level": "1"}
"""The settings with which ONNX Runtime does not round what it multiplies by weights of 8 bits to 8 bits."""
