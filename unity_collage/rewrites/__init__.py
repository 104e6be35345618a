"""Rewrites: the framework of Prepare, and its rules by family.

A rule is a frozen value; :data:`DEFAULT_RULES` is all of them in the order in which they are asked.
"""

from .activations import GELU_FORM, HARD_SIGMOID_FORM, HARD_SWISH_FORM, SIGMOID_FORM, SILU_FORM
from .affine import BIAS_SHAPE, SCALE_INTO_WEIGHTS
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
from .batch_norm import BATCH_NORM_FORM
from .clip import CLIP_CANONICAL, CLIP_FORM, EXTREMUM_OF_CALL_TIR, MERGE_CLIPS, RELU6_FORM
from .constants import (
    FOLD_CONSTANTS,
    FOLD_SHAPE_OF,
    FOLD_SHAPE_TO_TENSOR,
    FOLD_TENSOR_TO_SHAPE,
    PROJECT_TUPLE,
)
from .driver import rewrite_function
from .identity import (
    DROP_DROPOUT,
    DROP_EMPTY_PAD,
    DROP_IDENTITY_PERMUTE,
    DROP_JOIN_OF_ONE,
    DROP_NEUTRAL,
    DROP_SAME_DTYPE,
    DROP_SAME_SHAPE,
    DROP_SPLIT_INTO_ONE,
    DROP_WHOLE_SLICE,
)
from .rule import ANY_OP, RewriteError, Rule
from .scope import Scope
from .sums import UNSTACK_REDUCTION
from .views import MERGE_PERMUTES, MERGE_RESHAPES, PERMUTE_AS_RESHAPE, RESHAPE_FORM, UNIT_AXES_FIRST

DEFAULT_RULES: tuple[Rule, ...] = (
    # What is known already.
    PROJECT_TUPLE,
    FOLD_SHAPE_OF,
    FOLD_SHAPE_TO_TENSOR,
    FOLD_TENSOR_TO_SHAPE,
    FOLD_CONSTANTS,
    # What does nothing.
    DROP_DROPOUT,
    DROP_SAME_SHAPE,
    DROP_SAME_DTYPE,
    DROP_IDENTITY_PERMUTE,
    DROP_WHOLE_SLICE,
    DROP_EMPTY_PAD,
    DROP_JOIN_OF_ONE,
    DROP_SPLIT_INTO_ONE,
    DROP_NEUTRAL,
    # Views.
    RESHAPE_FORM,
    MERGE_RESHAPES,
    PERMUTE_AS_RESHAPE,
    MERGE_PERMUTES,
    UNIT_AXES_FIRST,
    # Bounds.
    EXTREMUM_OF_CALL_TIR,
    CONSTANT_RIGHT,
    CLIP_FORM,
    RELU6_FORM,
    MERGE_CLIPS,
    CLIP_CANONICAL,
    # Activations, before their parts are rewritten by themselves.
    GELU_FORM,
    HARD_SWISH_FORM,
    HARD_SIGMOID_FORM,
    SILU_FORM,
    SIGMOID_FORM,
    # Arithmetic.
    UNSTACK_REDUCTION,
    BATCH_NORM_FORM,
    SCALE_INTO_WEIGHTS,
    BIAS_SHAPE,
    SUBTRACT_CONSTANT,
    DIVIDE_EXACTLY,
    MERGE_CONSTANTS,
    POWER_FORM,
    SQUARE_FORM,
    DOUBLE_FORM,
    RSQRT_FORM,
)

__all__ = ["ANY_OP", "DEFAULT_RULES", "RewriteError", "Rule", "Scope", "rewrite_function"]
