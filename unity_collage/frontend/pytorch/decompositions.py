"""Which operators of PyTorch are decomposed before the import.

``torch.export`` decomposes everything into the core ATen operators. Some of the larger operators stay, because Relax,
our rewrites or our kernels have them as a whole: products, attention, recurrent layers, activations, resizing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

_WHOLE = (
    "linear.default",
    "matmul.default",
    "baddbmm.default",
    "scaled_dot_product_attention.default",
    "lstm.input",
    "gru.input",
    "rnn_tanh.input",
    "rnn_relu.input",
    "instance_norm.default",
    "max_pool1d.default",
    "max_pool2d.default",
    "max_pool3d.default",
    "avg_pool1d.default",
    "avg_pool2d.default",
    "avg_pool3d.default",
    "upsample_nearest1d.vec",
    "upsample_nearest2d.vec",
    "upsample_nearest3d.vec",
    "upsample_linear1d.vec",
    "upsample_bilinear2d.vec",
    "upsample_trilinear3d.vec",
    "upsample_bicubic2d.vec",
    "_upsample_nearest_exact1d.vec",
    "_upsample_nearest_exact2d.vec",
    "_upsample_nearest_exact3d.vec",
    "_upsample_bilinear2d_aa.vec",
    "_upsample_bicubic2d_aa.vec",
    "roll.default",
    "unbind.int",
    "stack.default",
    "silu.default",
    "gelu.default",
    "hardsigmoid.default",
    "hardswish.default",
    "hardtanh.default",
    "leaky_relu.default",
    "elu.default",
    "softplus.default",
    "prelu.default",
    "relu6.default",
    "log_sigmoid.default",
    "pixel_unshuffle.default",
    "index_add.default",
    "index_copy.default",
    "index_fill.int_Scalar",
    "tril.default",
    "triu.default",
    "unfold.default",
    "diagonal.default",
    "grid_sampler_2d.default",
    "im2col.default",
    "searchsorted.Tensor",
    "bucketize.Tensor",
    "argsort.default",
    "argsort.stable",
    # Their parts raise errors for matrices that have no such result, and a part without a result would be lost.
    "inverse.default",
    "linalg_inv.default",
    "linalg_cholesky.default",
    "linalg_solve.default",
    "linalg_lu_factor.default",
    "linalg_ldl_factor.default",
    "linalg_matrix_power.default",
    "linalg_tensorinv.default",
    "linalg_tensorsolve.default",
)
"""ATen operators that are imported as they are; a name is an operator and its overload."""


def table() -> Mapping[Any, Callable[..., Any]]:
    """The decompositions for ``ExportedProgram.run_decompositions``: torch's, without those of :data:`_WHOLE`."""
    decompositions = torch.export.default_decompositions()
    for name in _WHOLE:
        packet, overload = name.split(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload)
        if operator in decompositions:
            decompositions.pop(operator)
    return decompositions
