"""What a pair of backends costs more in turns has to show in every round of measuring."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from unity_collage import host_target
from unity_collage.backends.registry import get
from unity_collage.measure import launch

_ALONE = 10e-6


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([6e-6, 0.0, 0.0, 0.0, 0.0], {}),
        ([6e-6, 5e-6, 4e-6, 0.5e-6, 4e-6], {}),
        ([6e-6, 5e-6, 4e-6, 7e-6, 4e-6], {"tvm>openblas": 5e-6, "openblas>tvm": 5e-6}),
    ],
)
def test_a_transition_shows_in_every_round(
    monkeypatch: pytest.MonkeyPatch, more: Sequence[float], expected: dict[str, float]
) -> None:
    rounds = iter(more)

    def chains(probes: Sequence[launch.Probe], _target: object) -> tuple[launch.Chain, launch.Chain]:
        kernels = launch.MANY - launch.FEW
        return (lambda: 0.0), lambda: kernels * (_ALONE + (next(rounds) if len(probes) > 1 else 0.0))

    monkeypatch.setattr(launch, "_chains", chains)

    found = launch.transitions(host_target(), [get("tvm"), get("openblas")])

    assert found == pytest.approx(expected)
