"""What the report says of kernels that only move values."""

from __future__ import annotations

from typing import Any

import pytest

from unity_collage.plan.explanation import (
    ExplainedBinding,
    ExplainedCandidate,
    ExplainedCost,
    ExplainedKernel,
    Explanation,
    Proof,
    Verdict,
)
from unity_collage.plan.plan import VIEW
from unity_collage.report.moves import MOVES, moves

KERNELS = (
    ("onednn", ("relax.nn.conv2d",), 5e-3),
    ("tvm", ("relax.permute_dims", "relax.reshape"), 1e-3),
    ("tvm", ("relax.permute_dims", "relax.nn.relu"), 1e-3),
    (VIEW, ("relax.reshape",), 0.0),
    ("tvm", ("relax.concat",), 2e-3),
)


def explained(kernels: tuple[tuple[str, tuple[str, ...], float], ...] = KERNELS) -> Explanation:
    operators = [op for _, ops, _ in kernels for op in ops]
    first = [sum(len(ops) for _, ops, _ in kernels[:number]) for number in range(len(kernels))]
    return Explanation(
        Proof(1e-2, 1e-2, 0.0, True, "exact"),
        tuple(ExplainedBinding(f"v{number}", op, "") for number, op in enumerate(operators)),
        tuple(ExplainedKernel(number) for number in range(len(kernels))),
        tuple(
            ExplainedCandidate(
                number,
                backend,
                "r",
                "k",
                tuple(range(first[number], first[number] + len(ops))),
                number,
                Verdict.CHOSEN,
            )
            for number, (backend, ops, _) in enumerate(kernels)
        ),
        tuple(ExplainedCost(str(number), seconds) for number, (_, _, seconds) in enumerate(kernels)),
    )


def times(*kernels: tuple[float, float | None] | None) -> dict[str, Any]:
    return {"kernels": [each and {"seconds": each[0], "predicted": each[1]} for each in kernels]}


def test_only_kernels_that_compute_nothing_count() -> None:
    found = moves(explained(), None)
    assert found == {"says": "2 kernels only copy or reorder values: 3.00 ms, 30.0%.", "kernels": [1, 4]}


@pytest.mark.parametrize(
    ("in_place", "text"),
    [
        (
            times(None, (2e-3, 1.1e-3), None, None, (2e-3, 2.1e-3)),
            "; in place 4.00 ms, predicted 3.20 ms with launches.",
        ),
        (times(None, (2e-3, None), None, None, (2e-3, None)), "; in place 4.00 ms."),
        (
            times(None, None, None, None, (2e-3, 2.1e-3)),
            "; 1 of them in place 2.00 ms, predicted 2.10 ms with launches.",
        ),
        (times(*[None] * 5), "3.00 ms, 30.0%."),
        (times(), "3.00 ms, 30.0%."),
    ],
)
def test_their_time_in_the_program_is_told_where_it_is_known(in_place: dict[str, Any], text: str) -> None:
    assert moves(explained(), in_place)["says"].endswith(text)


def test_a_plan_without_them_says_so() -> None:
    assert moves(explained(KERNELS[:1]), None)["says"] == "No kernel only copies or reorders values."


def test_the_operators_are_those_of_relax() -> None:
    import tvm

    known = set(tvm.ir.Op.list_op_names())
    assert known >= MOVES
