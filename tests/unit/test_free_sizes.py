"""Free sizes compute as ints do, whatever they are, or say that they cannot."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import tirx

from unity_collage.graph.free_sizes import (
    Size,
    SizePlace,
    UnknownSize,
    ascending,
    places_of_sizes,
    size_of,
    unless_one,
)

N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")
SIZES = {"n": size_of(N), "m": size_of(M)}

monomials = st.sampled_from([(), ("n",), ("m",), ("n", "m"), ("n", "n")])
polynomials = st.dictionaries(monomials, st.integers(-9, 9), max_size=3)
assignments = st.fixed_dictionaries({"n": st.integers(1, 9), "m": st.integers(1, 9)})


def symbolic(polynomial: dict[tuple[str, ...], int]) -> Any:
    return sum((factor * math.prod(SIZES[name] for name in term) for term, factor in polynomial.items()), 0)


def at(value: Any, sizes: dict[str, int]) -> int:
    if not isinstance(value, Size):
        return value
    return sum(factor * math.prod(sizes[name] for name, *_ in term) for term, factor in value.terms.items())


@given(polynomials, polynomials, assignments)
def test_sums_and_products(one: Any, other: Any, sizes: dict[str, int]) -> None:
    a, b = symbolic(one), symbolic(other)
    x, y = at(a, sizes), at(b, sizes)
    assert at(a + b, sizes) == x + y
    assert at(a - b, sizes) == x - y
    assert at(a * b, sizes) == x * y


@given(polynomials, polynomials, st.lists(assignments, min_size=4))
def test_an_answer_holds_for_all_sizes(one: Any, other: Any, several: list[dict[str, int]]) -> None:
    a, b = symbolic(one), symbolic(other)
    questions = [
        lambda p, q: p < q,
        lambda p, q: p <= q,
        lambda p, q: p > q,
        lambda p, q: p >= q,
        lambda p, q: p // q,
        lambda p, q: p % q,
    ]
    for ask in questions:
        try:
            answer = ask(a, b)
        except (UnknownSize, ZeroDivisionError):
            continue
        for sizes in several:
            assert at(answer, sizes) == ask(at(a, sizes), at(b, sizes))


@given(polynomials, polynomials, assignments)
def test_equal_sizes_are_equal_at_all_sizes(one: Any, other: Any, sizes: dict[str, int]) -> None:
    a, b = symbolic(one), symbolic(other)
    if a == b:
        assert at(a, sizes) == at(b, sizes)


def test_strides_are_divided_exactly() -> None:
    n, m = SIZES["n"], SIZES["m"]
    assert (n * m * 768) // (m * 768) == n
    assert (n * 768) % 64 == 0
    assert divmod_of(64, n * 768) == (0, 64)


def divmod_of(a: Any, b: Any) -> tuple[Any, Any]:
    return a // b, a % b


@pytest.mark.parametrize("ask", [lambda n, m: n < m, lambda n, _: 768 // (n * 64), lambda n, _: int(n)])
def test_what_depends_on_the_sizes_is_refused(ask: Any) -> None:
    with pytest.raises(UnknownSize, match="the size"):
        ask(SIZES["n"], SIZES["m"])


def test_a_stride_along_an_axis_of_one_element_does_not_matter() -> None:
    n = SIZES["n"]
    with pytest.raises(UnknownSize):
        divmod_of(64, n * 64)
    with unless_one(n):
        assert divmod_of(64, n * 64) == (0, 64)
    with unless_one(n * 2), pytest.raises(UnknownSize):  # 2 n is 2, not 1, where n is 1
        divmod_of(64, n * 64)


def test_sizes_are_sorted_where_their_order_is_known() -> None:
    n, m = SIZES["n"], SIZES["m"]
    assert sorted([n * 16, 1, 16], key=ascending) == [1, 16, n * 16]
    with pytest.raises(UnknownSize):
        sorted([n, m], key=ascending)


def test_extents_of_tvm() -> None:
    half = tirx.floordiv(N, 2)
    assert size_of(tirx.const(3, "int64")) == 3
    assert size_of(N * 3 + 1) == SIZES["n"] * 3 + 1
    assert size_of(N - N + 4) == 4
    assert size_of(half) == size_of(tirx.floordiv(N, 2)) != SIZES["n"]
    assert str(size_of(half * 3)) == "3*n // 2"
    with pytest.raises(UnknownSize):  # n // 2 is 0 where n is 1
        bool(size_of(half * 16 + 16) >= 32)
    assert size_of(tirx.Var("n", "int64")) != SIZES["n"], "two sizes may have one name"


def test_the_extents_that_tell_sizes() -> None:
    n, m = SIZES["n"], SIZES["m"]
    assert places_of_sizes([(4, n * m, n * n), (n * 2 + 1, m), (n, m)]) == {
        n.symbol(): SizePlace(1, 0, factor=2, offset=1),
        m.symbol(): SizePlace(1, 1),
    }


def test_the_text_for_the_executors() -> None:
    n, m = SIZES["n"], SIZES["m"]
    names = {n.symbol(): "n.0", m.symbol(): "m.1"}
    assert (n * m * 64 + 3).to_json(names) == {"terms": [[64, "m.1", "n.0"], [3]]}
