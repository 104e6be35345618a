"""Kernels that compute nothing: copies, other orders of the same values, and other types of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..plan.explanation import ExplainedKernel, Explanation
from ..plan.plan import VIEW
from .cells import counted, duration
from .words import percent

MOVES = frozenset(
    f"relax.{name}"
    for name in (
        "astype", "broadcast_to", "concat", "dynamic_strided_slice", "expand_dims", "flatten", "flip",
        "gather_elements", "gather_nd", "index_tensor", "layout_transform", "nn.pad", "permute_dims", "repeat",
        "reshape", "split", "squeeze", "stack", "strided_slice", "take", "tile", "to_vdevice",
    )
)  # fmt: skip
"""Operators that only move values of their inputs, or cast them to another type."""


def moves(explanation: Explanation, in_place: Mapping[str, Any] | None) -> dict[str, Any]:
    """``says``, and the numbers of the ``kernels`` that only move values.

    ``in_place``: what the page has of the times of kernels (:func:`.in_place.in_place`). Views are not kernels.
    """
    found = [number for number, kernel in enumerate(explanation.kernels) if _moves(explanation, kernel)]
    if not found:
        return {"says": "No kernel only copies or reorders values.", "kernels": []}
    seconds = sum(explanation.seconds(explanation.kernels[number]) for number in found)
    total = explanation.proof.seconds
    share = f", {percent(seconds / total)}" if total else ""
    verbs = "only copies or reorders" if len(found) == 1 else "only copy or reorder"
    says = f"{counted(len(found), 'kernel')} {verbs} values: {duration(seconds)}{share}"
    return {"says": f"{says}{_measured(found, in_place)}.", "kernels": found}


def _moves(explanation: Explanation, kernel: ExplainedKernel) -> bool:
    candidate = explanation.by_id[kernel.candidate]
    operators = {explanation.bindings[index].op for index in candidate.bindings}
    return candidate.backend != VIEW and operators <= MOVES


def _measured(numbers: list[int], in_place: Mapping[str, Any] | None) -> str:
    """Their time in the running program, where it is known, beside what is predicted for the same kernels."""
    every = in_place["kernels"] if in_place else []
    times = [every[number] for number in numbers if every and every[number] is not None]
    if not times:
        return ""
    which = "" if len(times) == len(numbers) else f"{len(times)} of them "
    text = f"; {which}in place {duration(sum(time['seconds'] for time in times))}"
    predicted = [time["predicted"] for time in times]
    if any(each is None for each in predicted):
        return text
    return f"{text}, predicted {duration(sum(predicted))} with launches"
