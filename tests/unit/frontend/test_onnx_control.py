"""If, Loop and Scan, imported, built by TVM alone, and compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx_case import by_onnxruntime, run
from tvm import relax

from unity_collage.errors import ModelError
from unity_collage.frontend.onnx import repetition
from unity_collage.frontend.onnx.importer import imported

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 8)).astype("float32")
YES, NO = np.array(True), np.array(False)


def model(inputs: str, outputs: str, body: str, opset: int = 17, functions: str = "") -> onnx.ModelProto:
    """A model of ONNX's textual form; ``inputs`` and ``outputs`` are declarations."""
    domains = f'"" : {opset}' + (', "own" : 1' if functions else "")
    head = f"<ir_version: 8, opset_import: [{domains}]>"
    return parser.parse_model(f"{head} main ({inputs}) => ({outputs}) {{ {body} }} {functions}")


def agrees(made: onnx.ModelProto, *feeds: dict[str, np.ndarray]) -> None:
    """Assert that every run gives what ONNX Runtime gives, in element type, shape and value."""
    for given in feeds:
        found, expected = run(made, given), by_onnxruntime(made, given)
        assert [(got.dtype, got.shape) for got in found] == [(want.dtype, want.shape) for want in expected]
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def called(made: onnx.ModelProto) -> list[str]:
    """The names of the private functions that a model becomes."""
    functions = imported(made)[0].functions_items()
    names = [gvar.name_hint for gvar, func in functions if isinstance(func, relax.Function)]
    return [name for name in names if name != "main"]


# If

THEN = "then_branch = t () => (float[4,8] a) { a = Relu(x) }"
ELSE = "else_branch = e () => (float[4,8] b) { b = Neg(x) }"


@pytest.mark.parametrize("shape", ["", "[1]", "[1,1]", "[n]"])
def test_a_condition_of_one_element(shape: str) -> None:
    made = model(f"float[4,8] x, bool{shape} c", "float[4,8] y", f"y = If (c) <{THEN}, {ELSE}>")
    ones = (1,) * (shape.count(",") + 1) if shape else ()
    agrees(made, *({"x": X, "c": value.reshape(ones)} for value in (YES, NO)))


def test_only_the_taken_branch_of_a_known_condition_is_imported() -> None:
    refused = "else_branch = e () => (float[4,8] b) { b = own.Missing(x) }"
    made = model(
        "float[4,8] x",
        "float[4,8] y",
        f"k = Constant<value = bool[1] {{1}}> () y = If (k) <{THEN}, {refused}>",
    )
    assert not called(made)
    np.testing.assert_array_equal(run(made, {"x": X})[0], np.maximum(X, 0))


def test_values_of_outside_at_two_levels_and_symbolic_sizes() -> None:
    inner = """then_branch = tt () => (float[m,8] p) { s = Shape(h) f = CastLike(s, x) r = ReduceSum<keepdims=0>(f)
                   p0 = Mul(h, r) p = Add(p0, x) },
               else_branch = te () => (float[m,8] q) { q = Sub(x, h) }"""
    made = model(
        "float[n,8] x, bool c, bool d",
        "float[m,8] y",
        f"h = Abs(x) y = If (c) <then_branch = t () => (float[m,8] a) {{ a = If (d) <{inner}> }},"
        "else_branch = e () => (float[m,8] b) { b = Exp(h) }>",
    )
    agrees(
        made, *({"x": X[:rows], "c": c, "d": d} for rows, c, d in [(4, YES, YES), (3, YES, NO), (1, NO, NO)])
    )


def test_branches_of_different_sizes_keep_the_sizes_that_are_equal() -> None:
    branches = """then_branch = t () => (float[4,8] a) { a = Identity(x) },
                  else_branch = e () => (float[8,8] b) { b = Concat<axis=0>(x, x) }"""
    made = model("float[4,8] x, bool c", "float[n,8] z", f"y = If (c) <{branches}> z = Relu(y)")
    agrees(made, {"x": X, "c": YES}, {"x": X, "c": NO})
    dims = imported(made)[0]["main"].body.body.ty.shape
    assert dims is not None and int(dims.values[1]) == 8


def test_two_results_weights_of_its_own_and_a_result_that_is_known() -> None:
    branches = """then_branch = t () => (float[4,8] a, int64[1] k) <float[8] w = {1,2,3,4,5,6,7,8}>
                      { a = Mul(x, w) k = Constant<value = int64[1] {3}> () },
                  else_branch = e () => (float[4,8] b, int64[1] l)
                      { b = Abs(x) l = Constant<value = int64[1] {3}> () }"""
    made = model(
        "float[4,8] x, bool c",
        "float[3,4,8] z",
        f"y, k = If (c) <{branches}> "
        "r = Constant<value = int64[2] {1,1}> () s = Concat<axis=0>(k, r) z = Expand(y, s)",
    )
    agrees(made, {"x": X, "c": YES}, {"x": X, "c": NO})


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        (
            "float[32] a) { s = Constant<value = int64[1] {-1}> () a = Reshape(x, s) }",
            "1 dimensions in one branch",
        ),
        ("double[4,8] a) { a = Cast<to=11>(x) }", "float64 in one branch and float32"),
    ],
)
def test_branches_that_have_no_common_type(then: str, reason: str) -> None:
    made = model("float[4,8] x, bool c", "float y", f"y = If (c) <then_branch = t () => ({then}, {ELSE}>")
    with pytest.raises(ModelError, match=reason):
        imported(made)


@pytest.mark.parametrize("holds", [True, False])
def test_a_branch_that_does_not_fit_the_sizes_fails_when_it_is_taken(holds: bool) -> None:
    good, bad = "(float[4,8] a) { a = Relu(x) }", "(float[3,5] a) { a = Reshape(x, s) }"
    then, other = (good, bad) if holds else (bad, good)
    text = f"y = If (c) <then_branch = t () => {then}, else_branch = e () => {other}>"
    made = model("float[4,8] x, bool c", "float[n,m] y", f"s = Constant<value = int64[2] {{3, 5}}> () {text}")
    with pytest.warns(
        UserWarning, match=f"fails where the condition of If 'y' is {str(not holds).lower()}: Reshape"
    ):
        np.testing.assert_array_equal(run(made, {"x": X, "c": np.array(holds)})[0], np.maximum(X, 0))
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="match_cast"):
        run(made, {"x": X, "c": np.array(not holds)})


def test_an_if_of_two_branches_that_are_refused() -> None:
    branch = "(float[4,8] a) { q = SequenceConstruct(x) a = SequenceAt(q, k) }"
    text = f"y = If (c) <then_branch = t () => {branch}, else_branch = e () => {branch}>"
    made = model("float[4,8] x, bool c", "float[4,8] y", f"k = Constant<value = int64 {{0}}> () {text}")
    with pytest.raises(ModelError, match="sequences are not supported"):
        imported(made)


# Loop

SUM = """body = b (int64 i, bool going, float[4] v) => (bool on, float[4] w, float[4] s)
         { on = Identity(going) f = Cast<to=1>(i) w0 = Add(v, f) w = Add(w0, x) s = Mul(w, w) }"""
V = RNG.standard_normal(4).astype("float32")


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_a_number_of_iterations_that_is_an_input(count: int) -> None:
    made = model("float[4] x, int64 m", "float[4] y, float[k,4] z", f"y, z = Loop (m, , x) <{SUM}>")
    agrees(made, {"x": V, "m": np.array(count)})


@pytest.mark.parametrize(("count", "functions"), [(0, 0), (1, 0), (8, 0), (64, 0), (65, 4)])
def test_short_loops_are_unrolled(count: int, functions: int) -> None:
    text = f"m = Constant<value = int64[1] {{{count}}}> () y, z = Loop (m, , x) <{SUM}>"
    made = model("float[4] x", "float[4] y, float[k,4] z", text)
    assert len(called(made)) == functions
    if count != 64:  # it is slow to build
        agrees(made, {"x": V})


def test_a_loop_of_many_nodes_is_not_unrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetition, "MOST_NODES", 20)
    text = f"m = Constant<value = int64 {{5}}> () y, z = Loop (m, , x) <{SUM}>"
    made = model("float[4] x", "float[4] y, float[k,4] z", text)
    assert len(called(made)) == 4
    agrees(made, {"x": V})


def test_ten_thousand_iterations_do_not_overflow_the_stack() -> None:
    body = """body = b (int64 i, bool going, int64 v) => (bool on, int64 w) { on = Identity(going) w = Add(v, i) }"""
    made = model("int64 x, int64 m", "int64 y", f"y = Loop (m, , x) <{body}>")
    (found,) = run(made, {"x": np.array(1), "m": np.array(100_000)})
    assert found == 1 + 100_000 * 99_999 // 2


UNTIL = """body = b (int64 i, bool going, float[4] v) => (bool on, float[4] w, int64 s)
           { w = Add(v, x) r = ReduceSum<keepdims=0>(w) on = Less(r, limit) s = Mul(i, i) }"""


@pytest.mark.parametrize("limit", [-1.0, 3.0, 50.0])
@pytest.mark.parametrize("count", ["m", ""])
def test_a_condition_that_the_body_changes(limit: float, count: str) -> None:
    made = model(
        "float[4] x, int64 m, float limit, bool c",
        "float[4] y, int64[k] z",
        f"y, z = Loop ({count}, c, x) <{UNTIL}>",
    )
    given = {"x": np.full(4, 0.5, "float32"), "m": np.array(9), "limit": np.array(limit, "float32")}
    agrees(made, {**given, "c": YES}, {**given, "c": NO})


def test_a_known_number_of_iterations_and_a_condition_that_is_not_known() -> None:
    text = f"m = Constant<value = int64 {{40}}> () y, z = Loop (m, , x) <{UNTIL}>"
    made = model("float[4] x, float limit", "float[4] y, int64[k] z", text)
    agrees(
        made, *({"x": np.full(4, 0.5, "float32"), "limit": np.array(n, "float32")} for n in (-1, 1, 30, 500))
    )


def test_a_condition_that_is_known_in_every_iteration_is_unrolled() -> None:
    body = """body = b (int64 i, bool going, float[4] v) => (bool on, float[4] w)
              { w = Add(v, x) k = Constant<value = int64 {3}> () on = Less(i, k) }"""
    text = f"m = Constant<value = int64 {{50}}> () y = Loop (m, , x) <{body}>"
    made = model("float[4] x", "float[4] y", text)
    assert not called(made)
    np.testing.assert_allclose(run(made, {"x": V})[0], V * 5, rtol=1e-6)


GROWING = """body = b (int64 i, bool going, float[r,2] v, float[4] u) => (bool on, float[q,2] w, float[4] t, float[2] s)
             { on = Identity(going) w = Concat<axis=0>(v, row) t = Identity(u)
               s0 = ReduceSum<keepdims=0>(w, zero) s = Mul(s0, two) }"""


@pytest.mark.parametrize("count", [0, 1, 5, 30])
def test_a_carried_value_that_grows_and_one_that_stays(count: int) -> None:
    made = model(
        "float[a,2] x, float[1,2] row, float[4] u, int64 m",
        "float[b,2] y, float[4] u2, float[k,2] z",
        f"zero = Constant<value = int64[1] {{0}}> () two = Constant<value = float {{2}}> () "
        f"y, u2, z = Loop (m, , x, u) <{GROWING}>",
    )
    given = {"row": np.array([[1, 2]], "float32"), "u": V, "m": np.array(count)}
    agrees(made, {**given, "x": X[:3, :2]}, {**given, "x": X[:0, :2]})


def test_stacked_values_whose_size_is_known_only_inside() -> None:
    body = """body = b (int64 i, bool going, float[4] v) => (bool on, float[4] w, int64[r] s)
              { on = Identity(going) w = Identity(v) n = NonZero(v) s0 = Reshape(n, flat) s = Add(s0, i) }"""
    made = model(
        "float[4] x, int64 m",
        "float[4] y, int64[k,r] z",
        f"flat = Constant<value = int64[1] {{-1}}> () y, z = Loop (m, , x) <{body}>",
    )
    some = np.array([1, 0, 2, 0], "float32")
    agrees(made, *({"x": some, "m": np.array(count)} for count in (0, 1, 6)))


def test_loops_and_branches_inside_of_each_other() -> None:
    inner = """body = c (int64 j, bool going2, float[n,2] p) => (bool on2, float[n,2] q)
               { on2 = Identity(going2) f = Cast<to=1>(j) q0 = Add(p, f)
                 q = If (flag) <then_branch = t () => (float[n,2] a) { a = Mul(q0, x) },
                                else_branch = e () => (float[n,2] o) { o = Sub(q0, v) }> }"""
    outer = f"""body = b (int64 i, bool going, float[n,2] v) => (bool on, float[n,2] w, float[n,2] s)
               {{ on = Identity(going) w0 = Loop (i, , v) <{inner}> w = Tanh(w0) s = Identity(w) }}"""
    made = model(
        "float[n,2] x, int64 m, bool flag", "float[n,2] y, float[k,n,2] z", f"y, z = Loop (m, , x) <{outer}>"
    )
    agrees(
        made,
        *({"x": X[:rows, :2], "m": np.array(m), "flag": flag} for rows, m, flag in [(3, 5, YES), (2, 4, NO)]),
    )


def test_functions_inside_of_loops_and_loops_inside_of_functions() -> None:
    functions = """<domain: "own", opset_import: ["" : 17, "own" : 1]> twice (v) => (w) { w = Add(v, v) }
        <domain: "own", opset_import: ["" : 17, "own" : 1]> again <by: int> (v, m) => (w)
        { k = Constant<value_int: int = @by> () f = CastLike(k, v)
          w = Loop (m, , v) <body = b (int64 i, bool going, float[4] p) => (bool on, float[4] q)
          { on = Identity(going) q0 = own.twice(p) q = Sub(q0, f) }> }"""
    made = model("float[4] x, int64 m", "float[4] y", "y = own.again<by = 3> (x, m)", functions=functions)
    agrees(made, {"x": V, "m": np.array(4)}, {"x": V, "m": np.array(0)})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "float[4] v) => (bool on, double[4] w) { on = Identity(g) w = Cast<to=11>(v) }",
            "float32 before and float64",
        ),
        (
            "float[4] v) => (bool on, float[1,4] w) { on = Identity(g) w = Unsqueeze(v, zero) }",
            "1 dimensions before",
        ),
        ("seq(float[4]) v) => (bool on, seq(float[4]) w) { on = Identity(g) w = Identity(v) }", "a sequence"),
        (
            "float[4] v) => (bool on, float[4] w) { on = Constant<value = bool[2] {1,0}> () w = Neg(v) }",
            "2 elements",
        ),
    ],
)
def test_loops_that_are_refused(body: str, reason: str) -> None:
    text = f"zero = Constant<value = int64[1] {{0}}> () y = Loop (m, , x) <body = b (int64 i, bool g, {body}>"
    with pytest.raises(ModelError, match=reason):
        imported(model("float[4] x, int64 m", "float y", text))


# Scan

BODY = """body = b (float[2] s, float[3] p, float[2] q) => (float[2] t, float[2] o, float[3] r)
          { t0 = Add(s, q) t = Tanh(t0) o = Mul(t, q) r = Add(p, c) }"""


@pytest.mark.parametrize("length", [0, 5, 70])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("turned", [(1, 0), (0, 1)])
def test_axes_and_directions_of_a_scan(length: int, known: bool, turned: tuple[int, int]) -> None:
    a, b = turned
    text = f"""t, o, r = Scan<{BODY}, num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [{a}, {b}],
               scan_output_axes = [0, -1], scan_output_directions = [{b}, {a}]> (s, p, q)"""
    n = str(length) if known else "n"
    made = model(
        f"float[2] s, float[3,{n}] p, float[{n},2] q, float[3] c",
        "float[2] t, float[k,2] o, float[3,k] r",
        text,
    )
    p, q = (RNG.standard_normal(shape).astype("float32") for shape in ((3, length), (length, 2)))
    feeds = {"s": X[0, :2], "p": p, "q": q, "c": V[:3]}
    if length:
        agrees(made, feeds)
    else:  # ONNX Runtime divides by zero
        found = run(made, feeds)
        np.testing.assert_array_equal(found[0], X[0, :2])
        assert [got.shape for got in found[1:]] == [(0, 2), (3, 0)]


def test_operands_of_a_scan_have_equal_lengths() -> None:
    text = f"t, o, r = Scan<{BODY}, num_scan_inputs = 2> (s, p, q)"
    made = model(
        "float[2] s, float[4,3] p, float[5,2] q, float[3] c", "float[2] t, float[k,2] o, float[k,3] r", text
    )
    with pytest.raises(ModelError, match=r"its steps has the shape \(4, 5\)"):
        imported(made)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("lengths", [None, [4, 2, 1]])
def test_scans_of_operator_set_8_have_batches(known: bool, lengths: list[int] | None) -> None:
    body = """body = b (float[2] s, float[2] p, float[2] q) => (float[2] t, float[2] o)
              { t0 = Add(s, p) t = Sub(t0, q) o = Mul(t, p) }"""
    text = (
        f"t, o = Scan<{body}, num_scan_inputs = 2, directions = [0, 1]> ({'l' if lengths else ''}, s, p, q)"
    )
    b, n = ("3", "4") if known else ("b", "n")
    inputs = f"float[{b},2] s, float[{b},{n},2] p, float[{b},{n},2] q" + (
        f", int64[{b}] l" if lengths else ""
    )
    made = model(inputs, "float[b,2] t, float[b,n,2] o", text, opset=8)
    s, p, q = (RNG.standard_normal(shape).astype("float32") for shape in ((3, 2), (3, 4, 2), (3, 4, 2)))
    agrees(made, {"s": s, "p": p, "q": q, **({"l": np.array(lengths)} if lengths else {})})


def test_functions_of_sub_graphs_have_blocks_of_dataflow() -> None:
    made = model("float[4] x, int64 m", "float[4] y, float[k,4] z", f"y, z = Loop (m, , x) <{SUM}>")
    functions = [func for _, func in imported(made)[0].functions_items() if isinstance(func, relax.Function)]
    blocks = [block for func in functions for block in func.body.blocks if len(block.bindings) > 1]
    assert blocks and all(isinstance(block, relax.DataflowBlock) for block in blocks)
