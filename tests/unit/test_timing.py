"""Intervals of percentiles, and timing in turns: rounds, their budget, and when they stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
import tvm_ffi

from unity_collage import runtime
from unity_collage.cost.method import Method
from unity_collage.runtime import Runner


def coverage(n: int, low: int, high: int, p: float) -> float:
    """P(x_(low) <= q_p <= x_(high)): at least low, at most high - 1 of n samples are below the quantile."""
    return sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(low, high))


@pytest.mark.parametrize("percentile", [10.0, 50.0, 90.0])
@pytest.mark.parametrize("n", [9, 15, 60, 300])
def test_an_interval_is_the_narrowest_between_order_statistics_that_is_sure_enough(
    n: int, percentile: float
) -> None:
    low, estimate, high = runtime.interval(list(range(1, n + 1)), percentile, 0.9)
    below, above = (sum(coverage(n, k, k + 1, percentile / 100) for k in ks) for ks in (
        range(int(low)), range(int(high), n + 1)))  # fmt: skip
    one_more = coverage(n, int(low), int(low) + 1, percentile / 100)
    assert low <= estimate <= high
    assert low == 1 or below <= 0.05 < below + one_more
    assert high == n or above <= 0.05


def test_the_median_of_fifteen_lies_between_the_fourth_and_the_twelfth() -> None:
    assert runtime.interval([float(value) for value in range(15, 0, -1)]) == (4.0, 8.0, 12.0)


def test_few_samples_give_the_whole_range() -> None:
    assert runtime.interval([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)


def test_the_estimate_is_the_percentile_of_numpy() -> None:
    samples = np.random.default_rng(0).exponential(size=37)
    assert runtime.interval(samples.tolist(), 75.0).estimate == pytest.approx(np.percentile(samples, 75))


@pytest.mark.parametrize(("samples", "percentile"), [([], 50.0), ([1.0], 0.0), ([1.0], 100.0)])
def test_what_has_no_percentile_is_an_error(samples: list[float], percentile: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        runtime.interval(samples, percentile)


def runner(body: Callable[[], None]) -> Runner:
    return Runner(tvm_ffi.convert(body), [])


def test_runners_run_in_turn_and_the_order_is_reversed_each_round() -> None:
    order: list[str] = []
    runners = [runner(lambda name=name: order.append(name)) for name in "ab"]
    timed = runtime.time_in_turns(runners, min_runs=4, max_runs=4, max_warmup_seconds=0.0, max_seconds=60.0)
    assert all(3 <= len(runs.seconds) <= 4 for runs in timed)  # one may have been disturbed
    assert "".join(order).endswith("abbaabba")


def test_with_an_eviction_for_each_run_a_turn_is_three_runs_after_one_that_does_not_count() -> None:
    order: list[str] = []
    runners = [runner(lambda name=name: order.append(name)) for name in "ab"]
    limits = {"min_runs": 6, "max_runs": 6, "max_warmup_seconds": 0.0, "max_seconds": 60.0}
    timed = runtime.time_in_turns(runners, evict_each_run=True, **limits)
    assert all(3 <= len(runs.seconds) <= 6 for runs in timed)
    assert "".join(order).endswith("aaaabbbb" + "bbbbaaaa")


@pytest.mark.alone  # runs that another test disturbs do not count, and the slower runner then goes on
def test_a_slower_runner_stops_and_the_other_goes_on() -> None:
    fast, slow = runtime.time_in_turns(
        [runner(lambda: time.sleep(0.0001)), runner(lambda: time.sleep(0.1))],
        min_runs=3, max_runs=40, tolerance=0.0, max_seconds=60.0, max_warmup_seconds=0.0,
    )  # fmt: skip
    assert len(slow.seconds) < len(fast.seconds) <= 40


def test_a_slower_runner_that_is_no_rival_goes_on() -> None:
    calls: list[str] = []

    def slow() -> None:
        calls.append("slow")
        time.sleep(0.005)

    runtime.time_in_turns(
        [runner(lambda: calls.append("fast")), runner(slow)._replace(rivals=1)],
        min_runs=3, max_runs=12, tolerance=0.0, max_seconds=60.0, max_warmup_seconds=0.0,
    )  # fmt: skip
    assert calls.count("slow") >= 9  # a rival stops after 3, unless other work disturbs them


def test_a_twin_runs_before_each_run_and_is_not_timed() -> None:
    order: list[str] = []
    twin = tvm_ffi.convert(lambda: order.append("t")), []
    runners = [runner(lambda: order.append("a")), runner(lambda: order.append("b"))._replace(twin=twin)]
    timed = runtime.time_in_turns(runners, min_runs=4, max_runs=4, max_warmup_seconds=0.0, max_seconds=60.0)
    assert all(3 <= len(one.seconds) <= 4 for one in timed)
    assert "".join(order).endswith("atb" + "tba" + "atb" + "tba")


def test_the_order_is_reversed_among_rivals_only() -> None:
    order: list[str] = []
    runners = [
        runner(lambda name=name: order.append(name))._replace(rivals=rivals)
        for name, rivals in zip("abcd", (0, 0, 1, 1), strict=True)
    ]
    runtime.time_in_turns(runners, min_runs=4, max_runs=4, max_warmup_seconds=0.0, max_seconds=60.0)
    assert "".join(order).endswith("abcd" + "badc" + "abcd" + "badc")


def test_timing_ends_when_the_budget_is_spent() -> None:
    (timed,) = runtime.time_in_turns(
        [runner(lambda: time.sleep(0.02))], max_seconds=0.001, max_warmup_seconds=0.0
    )
    assert len(timed.seconds) <= 3  # one, and another for each that was disturbed


def test_an_error_of_a_kernel_is_raised() -> None:
    with pytest.raises(ValueError, match="no more"):
        runtime.time_in_turns([Runner(tvm_ffi.convert(_raising), [])])


def _raising() -> None:
    raise ValueError("no more")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"percentile": 100.0}, "a percentile is between 0 and 100"),
        ({"confidence": 1.0}, "a confidence between 0 and 1"),
        ({"min_runs": 0}, "at least 1"),
        ({"min_runs": 5, "max_runs": 4}, "at most 4 runs, not 5"),
    ],
)
def test_a_method_that_times_nothing_is_an_error(options: dict[str, float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Method(**options)
