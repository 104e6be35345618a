"""The converters of all operators, in one place.

A converter handles an operator in every version of the operator set that the installed onnx knows, from 6 on. It
reads ``node.version`` where versions differ. An operator that is in no table here is refused by name. Domains count:
an operator of a custom domain is never treated as the standard's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .converters import (
    attention,
    attention_grouped,
    attention_microsoft,
    batch_normalisation,
    control,
    convolution,
    deformable,
    elementwise,
    microsoft,
    normalisation,
    pooling,
    products,
    quantised_products,
    recurrent,
    tensors,
)
from .node import Converted, OnnxNode

Converter = Callable[[OnnxNode], Converted]

STANDARD: Mapping[str, Converter] = {
    **elementwise.CONVERTERS,
    **tensors.CONVERTERS,
    **control.CONVERTERS,
    **convolution.CONVERTERS,
    **pooling.CONVERTERS,
    **batch_normalisation.CONVERTERS,
    **normalisation.CONVERTERS,
    **products.CONVERTERS,
    **attention.CONVERTERS,
    **recurrent.CONVERTERS,
    **deformable.CONVERTERS,
}
"""The operators of ai.onnx that are converted."""

MICROSOFT: Mapping[str, Converter] = {
    **elementwise.MICROSOFT,
    **products.MICROSOFT,
    **microsoft.MICROSOFT,
    **attention_microsoft.MICROSOFT,
    **attention_grouped.MICROSOFT,
    **quantised_products.MICROSOFT,
    **recurrent.MICROSOFT,
    **tensors.MICROSOFT,
}
"""The operators of com.microsoft, which exporters of ONNX Runtime write."""

CONVERTERS: Mapping[tuple[str, str], Converter] = {
    **{("", op): converter for op, converter in STANDARD.items()},
    **{("com.microsoft", op): converter for op, converter in MICROSOFT.items()},
}
"""All converters by domain and operator."""

BY_DEFINITION = frozenset({"CausalConvWithState", "CenterCropPad", "LinearAttention"})
"""Operators of ai.onnx that are converted by the function that defines them in the standard."""

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"),
        "strings are not supported",
    ),
    **dict.fromkeys(
        (
            *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert"),
            *("SequenceLength", "SequenceMap", "SplitToSequence", "ConcatFromSequence"),
        ),
        "sequences are not supported",
    ),
    **dict.fromkeys(
        ("Optional", "OptionalGetElement", "OptionalHasElement"), "optional values are not supported"
    ),
    "ImageDecoder": "image files are not decoded: decode them before",
}
"""Operators of ai.onnx that are refused, each with the reason."""


def converter(domain: str, op: str) -> Converter | None:
    """The converter of an operator; None where there is none."""
    return CONVERTERS.get((domain, op))


def reason(domain: str, op: str) -> str:
    """Why an operator is refused."""
    if domain in ("", "ai.onnx") and op in REFUSED:
        return REFUSED[op]
    return (
        f"there is no converter for operators of {domain}"
        if domain
        else "there is no converter for this operator"
    )
