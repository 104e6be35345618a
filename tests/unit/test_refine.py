"""What the loop decides, on typed timings; no program runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tvm.ir import IRModule

from unity_collage.annotations import CANDIDATES, COSTS, Candidate, Cost, Costs
from unity_collage.refine.breeding import Breeding, bred
from unity_collage.refine.entrants import GREEDY, OURS, alone, entrants
from unity_collage.refine.loop import winner_of, with_observed
from unity_collage.search import Option, Problem
from unity_collage.search.evolutionary import Settings
from unity_collage.testing import graphs


@pytest.mark.parametrize(
    ("medians", "winner"),
    [
        ({OURS: [1.0, 1.0], "tvm": [1.1, 1.2]}, OURS),
        ({OURS: [1.0, 1.0], "tvm": [0.9, 0.9]}, "tvm"),
        ({OURS: [1.0, 1.0], "tvm": [0.995, 0.995]}, OURS),
        ({"greedy": [2.0], "tvm": [1.0]}, "tvm"),
    ],
    ids=["ours is faster", "another is faster", "a tie is ours", "ours does not run"],
)
def test_the_fastest_program_wins(medians: dict[str, list[float]], winner: str) -> None:
    assert winner_of(medians, margin=0.01) == winner


def test_drift_between_rounds_decides_nothing() -> None:
    """The machine was three times slower in the second round; in each ours was the faster."""
    assert winner_of({OURS: [1.0, 3.0, 3.0], "tvm": [1.2, 3.6, 3.6]}, margin=0.01) == OURS


def _problem() -> Problem:
    """Two nodes in a row: the library has each, TVM both alone and together."""
    options = (
        Option(0, 0b01, 2.0, backend="lib"),
        Option(1, 0b10, 5.0, backend="lib"),
        Option(2, 0b01, 3.0, backend="tvm"),
        Option(3, 0b10, 3.0, backend="tvm"),
        Option(4, 0b11, 5.5, backend="tvm"),
    )
    return Problem(((), (0,)), 0, options)


def test_what_a_user_would_have_picked_competes() -> None:
    found = dict(entrants({"main": _problem()}, ("lib", "tvm")))
    assert found == {OURS: {"main": (0, 3)}, GREEDY: {"main": (0, 1)}, "tvm": {"main": (4,)}}


def test_a_forced_backend_leaves_to_tvm_only_what_it_does_not_take() -> None:
    options = tuple(option for option in _problem().options if option.id != 1)
    forced = alone(Problem(((), (0,)), 0, options), "lib")
    assert [option.id for option in forced.options] == [0, 3]


def test_breeding_finds_a_plan_that_prices_do_not_show(tmp_path: Path) -> None:
    """The program with TVM's pair is the fastest as a whole, and a second search goes on from the file."""
    asked: list[tuple[int, ...]] = []

    def measured(plan: dict[str, tuple[int, ...]]) -> float:
        asked.append(plan["main"])
        return 1.0 if plan["main"] == (2, 3) else 2.0

    breeding = Breeding(settings=Settings(population=8, generations=3), state=tmp_path / "state.json")
    base = {"main": (0, 3)}
    assert bred({"main": _problem()}, base, measured, breeding) == {"main": (2, 3)}
    before = len(asked)
    assert bred({"main": _problem()}, base, measured, breeding) == {"main": (2, 3)}
    assert len(asked) == before


def test_prices_from_the_running_program_replace_those_of_kernels_alone() -> None:
    """Two candidates share a price: the mean of what both took in place, their launch taken off."""
    func = graphs.chain()
    candidates = tuple(Candidate(i, "tvm", "typed", "single", (i,)) for i in range(3))
    costs = Costs(
        {"a": Cost(1.0), "b": Cost(5.0)}, {0: "a", 1: "a", 2: "b"}, launch_seconds=9.0, launches={"tvm": 0.5}
    )
    priced = IRModule({"main": COSTS.write(CANDIDATES.write(func, candidates), costs)})
    learned = COSTS.read(with_observed(priced, {0: 2.5, 1: 3.5})["main"])
    assert learned.prices["a"].seconds == 2.5 and learned.prices["a"].origin == "in the program"
    assert learned.prices["b"].seconds == 5.0
    assert COSTS.read(priced["main"]).prices["a"].seconds == 1.0
