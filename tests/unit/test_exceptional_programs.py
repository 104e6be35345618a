"""Whether programs of other runtimes pass on NaN and infinity as ours do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op

from unity_collage.feedback.comparison import Comparison
from unity_collage.feedback.settings import Refinement
from unity_collage.profile.exceptional import exceptional_sets, loses
from unity_collage.profile.inputs import why_not_exceptional
from unity_collage.testing.conformance.cases import function

NAN, INF = np.nan, np.inf


def floats(*values: float) -> np.ndarray:
    return np.array(values, "float32")


@pytest.mark.parametrize(
    ("value", "right", "lost"),
    [
        (floats(1, 0), floats(1, NAN), True),
        (floats(1, 0), floats(1, -INF), True),
        (floats(1, INF), floats(1, NAN), False),
        (floats(NAN, 0), floats(NAN, NAN), False),
        (floats(NAN, 0), floats(1, 0), False),
        (np.array([1, 2]), np.array([3, 4]), False),
    ],
)
def test_lost_values(value: np.ndarray, right: np.ndarray, lost: bool) -> None:
    assert loses([value], [right]) is lost


def test_the_middle_of_each_input_of_floats_is_exceptional() -> None:
    sets = dict(exceptional_sets([[floats(1, 2, 3), np.array([1, 2])]]))
    assert list(sets) == ["NaN", "infinity", "-infinity"]
    np.testing.assert_array_equal(sets["infinity"][0][0], floats(1, INF, 3))
    np.testing.assert_array_equal(sets["infinity"][0][1], [1, 2])
    assert not list(exceptional_sets([[np.array([1, 2])]]))


def module(body: Callable[[relax.Expr], relax.Expr]) -> IRModule:
    """``body`` of a tensor of floats."""
    return IRModule({"main": function(body, ((4,),), "float32")})


PLAIN = module(op.nn.relu)
INDEXES = module(lambda x: op.take(x, op.astype(x, "int64"), axis=0))


def test_integers_of_floats_are_not_made_of_nan() -> None:
    assert why_not_exceptional(PLAIN) is None
    assert why_not_exceptional(INDEXES) == "relax.astype makes integers of floats"


@pytest.mark.parametrize(
    ("mod", "name", "reason"),
    [
        (PLAIN, "theirs", "it makes numbers of NaN in the inputs"),
        (PLAIN, "ours again", ""),
        (INDEXES, "theirs", ""),
    ],
)
def test_a_runtime_that_loses_nan_is_refused(mod: IRModule, name: str, reason: str) -> None:
    builder: Any = SimpleNamespace(whole_models={"theirs": None}, imported=mod)
    worker: Any = SimpleNamespace(
        add=lambda *_: None, error=lambda *_: 0.0, lost=lambda name, reference: ["NaN"]
    )
    compared = Comparison(builder, Refinement(), worker, lambda _: None)
    made: Any = (mod, None)
    assert compared.add_built("ours", None, lambda: made)
    assert compared.add_built(name, None, lambda: made) is not bool(reason)
    assert compared.programs[name].reason == reason
