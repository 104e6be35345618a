"""Every backend that can be used here has a probe, so its transitions are measured."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

import unity_collage as uc
from unity_collage.backends.registry import known, select
from unity_collage.lowering.build import build
from unity_collage.measure import transition_chains
from unity_collage.measure.transition_chains import SIZES, chains, probes


def test_all_of_ours_have_a_probe_and_run_in_turns() -> None:
    target = uc.host_target()
    backends = [backend for backend in select(None, target) if backend.name in known()]
    kernels, unknown = probes(target, backends)
    assert not unknown and [*kernels] == [backend.name for backend in backends]
    pairs = [(name, "tvm") for name in kernels if name != "tvm"]
    timers = chains(kernels, pairs, target)
    assert timers.keys() == {(*pair, size) for pair in pairs for size in SIZES}
    assert all(seconds > 0.0 for pair in pairs for seconds in timers[(*pair, SIZES[0])]())


def test_a_chain_leaves_positive_values_as_they_are() -> None:
    """So the probes are what they are taken for, and values neither grow nor vanish."""
    target = uc.host_target()
    kernels, _ = probes(target, select(None, target))
    one, *others = kernels
    program = transition_chains._program(kernels, [(one, other) for other in others])
    machine = relax.VirtualMachine(build(program, target), tvm.cpu())
    x = np.random.default_rng(0).random((1, 8, 8, 16), dtype="float32")
    for other in others:
        result = machine[f"mixed_{one}_{other}_{SIZES[0]}"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(result, x, rtol=1e-5, atol=1e-6)
