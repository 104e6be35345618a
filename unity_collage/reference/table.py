"""The table of all operators with a numpy reference, by name."""

from __future__ import annotations

from unity_collage.reference import (
    activation,
    convolution,
    create,
    elementwise,
    image,
    index,
    linear_algebra,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduce,
    shape,
    sort,
)
from unity_collage.reference.values import Operator

OPERATORS: dict[str, Operator] = {
    **elementwise.OPERATORS,
    **activation.OPERATORS,
    **reduce.OPERATORS,
    **shape.OPERATORS,
    **create.OPERATORS,
    **index.OPERATORS,
    **sort.OPERATORS,
    **linear_algebra.OPERATORS,
    **convolution.OPERATORS,
    **pooling.OPERATORS,
    **normalization.OPERATORS,
    **image.OPERATORS,
    **quantization.OPERATORS,
    **recurrent.OPERATORS,
}
