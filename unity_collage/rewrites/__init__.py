"""Rewrites: the framework of Prepare, and its rules by family.

A rewrite is a frozen value; :data:`DEFAULT_REWRITES` has all of them in the order in which the driver tries them.
"""

from .activations import (
    HARD_SIGMOID_FORM,
    HARD_SWISH_FORM,
    ONE_SLOPE_FORM,
    SIGMOID_FORM,
    SILU_FORM,
)
from .affine import BIAS_SHAPE, SCALE_BEFORE_PERMUTE, SCALE_INTO_WEIGHTS
from .arithmetic import (
    CONSTANT_RIGHT,
    DIVIDE_EXACTLY,
    DOUBLE_FORM,
    MERGE_CONSTANTS,
    POWER_FORM,
    RSQRT_FORM,
    SQUARE_FORM,
    SUBTRACT_CONSTANT,
)
from .attention import ABSORB_FACTOR, FACTOR_AFTER_PRODUCT, PRODUCT_DIVIDED
from .batch_norm import BATCH_NORM_FORM
from .byte_tables import FUNCTION_OF_BYTES
from .clip import CLIP_CANONICAL, CLIP_FORM, EXTREMUM_OF_CALL_TIR, MERGE_CLIPS
from .constants import (
    FOLD_CONSTANTS,
    FOLD_SHAPE_OF,
    FOLD_SHAPE_TO_TENSOR,
    FOLD_TENSOR_TO_SHAPE,
    PRINTABLE_SCALARS,
    PROJECT_TUPLE,
    READ_LITERALS_IN_PLACE,
)
from .driver import rewrite_function
from .empty import MEANS_OF_NOTHING, SUMS_OF_NOTHING, WITHOUT_ELEMENTS
from .exceptional import CANCELLING, DIVIDED_ZERO, EQUAL_TO_ITSELF, TIMES_ZERO
from .gelu import GELU_FORM
from .identity import (
    DROP_DROPOUT,
    DROP_EMPTY_PAD,
    DROP_IDENTITY_PERMUTE,
    DROP_JOIN_OF_ONE,
    DROP_NEUTRAL,
    DROP_RESIZE_TO_ITS_SIZE,
    DROP_SAME_DTYPE,
    DROP_SAME_SHAPE,
    DROP_SPLIT_INTO_ONE,
    DROP_WHOLE_SLICE,
)
from .layer_norm import LAYER_NORM_FORM, SCALE_INTO_LAYER_NORM, SHIFT_INTO_LAYER_NORM
from .near_misses import near_misses
from .one_convolution import ONE_CONVOLUTION
from .own_names import with_own_names
from .padding import PAD_FORM, PAD_INTO_WINDOW
from .quantised import QUANTIZED_AGAIN, SCALED_SUMS
from .reductions import GLOBAL_MEAN, LOG_SOFTMAX_FORM, REDUCED_AXES, SOFTMAX_FORM
from .rewrite import ANY_OP, Rewrite, RewriteError
from .rms_norm import RMS_NORM_FORM, SCALE_INTO_RMS_NORM
from .scope import Scope
from .shared_heads import SHARED_HEADS, SHARED_HEADS_OF_ONE_ROW
from .slices import MERGE_SLICES, POOL_OF_ONE, SLICE_INTO_CONVOLUTION, SLICE_OF_PAD, TAKE_AS_SLICE
from .split import SPLIT_INTO_WEIGHTS
from .sums import UNSTACK_REDUCTION
from .views import (
    MERGE_PERMUTES,
    MERGE_RESHAPES,
    PERMUTE_AS_RESHAPE,
    RESHAPE_FORM,
    ROWS_BEFORE_PRODUCT,
    UNIT_AXES_FIRST,
    UNIT_AXES_STAY,
)
from .why_not import WhyNot

DEFAULT_REWRITES: tuple[Rewrite, ...] = (
    # Known values.
    PROJECT_TUPLE,
    FOLD_SHAPE_OF,
    FOLD_SHAPE_TO_TENSOR,
    FOLD_TENSOR_TO_SHAPE,
    FOLD_CONSTANTS,
    WITHOUT_ELEMENTS,
    MEANS_OF_NOTHING,
    SUMS_OF_NOTHING,
    READ_LITERALS_IN_PLACE,
    PRINTABLE_SCALARS,
    # Operators without effect.
    DROP_DROPOUT,
    DROP_SAME_SHAPE,
    DROP_SAME_DTYPE,
    DROP_IDENTITY_PERMUTE,
    DROP_WHOLE_SLICE,
    DROP_EMPTY_PAD,
    DROP_RESIZE_TO_ITS_SIZE,
    DROP_JOIN_OF_ONE,
    DROP_SPLIT_INTO_ONE,
    DROP_NEUTRAL,
    # Views.
    RESHAPE_FORM,
    MERGE_RESHAPES,
    ROWS_BEFORE_PRODUCT,
    PERMUTE_AS_RESHAPE,
    MERGE_PERMUTES,
    UNIT_AXES_FIRST,
    UNIT_AXES_STAY,
    # Windows: padding, steps, whole images.
    PAD_FORM,
    POOL_OF_ONE,
    PAD_INTO_WINDOW,
    TAKE_AS_SLICE,
    SLICE_OF_PAD,
    MERGE_SLICES,
    SLICE_INTO_CONVOLUTION,
    GLOBAL_MEAN,
    REDUCED_AXES,
    # Bounds.
    EXTREMUM_OF_CALL_TIR,
    CONSTANT_RIGHT,
    CLIP_FORM,
    MERGE_CLIPS,
    CLIP_CANONICAL,
    # Activations, before their parts are rewritten by themselves.
    GELU_FORM,
    HARD_SWISH_FORM,
    ONE_SLOPE_FORM,
    HARD_SIGMOID_FORM,
    SILU_FORM,
    SIGMOID_FORM,
    # Norms.
    RSQRT_FORM,
    SOFTMAX_FORM,
    LOG_SOFTMAX_FORM,
    LAYER_NORM_FORM,
    SCALE_INTO_LAYER_NORM,
    SHIFT_INTO_LAYER_NORM,
    RMS_NORM_FORM,
    SCALE_INTO_RMS_NORM,
    # Products.
    SPLIT_INTO_WEIGHTS,
    ABSORB_FACTOR,
    FACTOR_AFTER_PRODUCT,
    PRODUCT_DIVIDED,
    SHARED_HEADS_OF_ONE_ROW,
    SHARED_HEADS,
    # Quantised values.
    SCALED_SUMS,
    QUANTIZED_AGAIN,
    FUNCTION_OF_BYTES,
    # Arithmetic.
    EQUAL_TO_ITSELF,
    CANCELLING,
    TIMES_ZERO,
    DIVIDED_ZERO,
    UNSTACK_REDUCTION,
    BATCH_NORM_FORM,
    SCALE_BEFORE_PERMUTE,
    SCALE_INTO_WEIGHTS,
    BIAS_SHAPE,
    ONE_CONVOLUTION,
    SUBTRACT_CONSTANT,
    DIVIDE_EXACTLY,
    MERGE_CONSTANTS,
    POWER_FORM,
    SQUARE_FORM,
    DOUBLE_FORM,
)

__all__ = [
    "ANY_OP",
    "DEFAULT_REWRITES",
    "SHARED_HEADS",
    "Rewrite",
    "RewriteError",
    "Scope",
    "WhyNot",
    "near_misses",
    "rewrite_function",
    "with_own_names",
]
