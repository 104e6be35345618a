"""Products of the oneDNN and OpenBLAS executors against numpy."""

import numpy as np
import pytest
import tvm_ffi
from native_program import Program, View, random, run, seen_as

from unity_collage import runtime

# Argument names of a product: left, right, result, primitive.
NAMES = {"onednn": ("src", "weights", "dst", "matmul"), "openblas": ("a", "b", "c", "gemm")}


@pytest.fixture(params=list(NAMES))
def backend(request: pytest.FixtureRequest) -> str:
    if reason := runtime.why_unavailable(request.param):
        pytest.skip(reason)
    return request.param


def product(backend: str, program: Program, a: View, b: View, c: View, **more: object) -> tvm_ffi.Module:
    left, right, result, primitive = NAMES[backend]
    attrs = {key: value for key, value in more.items() if key in ("alpha", "beta")}
    extra = {key: value for key, value in more.items() if key == "bias"}
    program.step(primitive, {left: a, right: b, result: c, **extra}, **attrs)
    return program.create(backend)


def transposed(view: View) -> View:
    """The last two dims swapped, the memory as it is."""
    dims, strides = view["dims"], view["strides"]
    return seen_as(view, [*dims[:-2], dims[-1], dims[-2]], [*strides[:-2], strides[-1], strides[-2]])


@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("b_transposed", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("shape", [(5, 7, 3), (1, 64, 33), (40, 1, 17), (1, 1, 9), (6, 5, 1), (130, 200, 64)])
def test_every_layout_of_a_product(backend, shape, constant, a_transposed, b_transposed):
    m, n, k = shape
    a, b = (
        random(*((k, m) if a_transposed else (m, k))),
        random(*((n, k) if b_transposed else (k, n)), seed=1),
    )
    program = Program()
    left = program.input(*a.shape)
    right = program.constant(b) if constant else program.input(*b.shape)
    module = product(
        backend,
        program,
        transposed(left) if a_transposed else left,
        transposed(right) if b_transposed else right,
        program.output(m, n),
    )
    inputs = (a,) if constant else (a, b)
    expected = (a.T if a_transposed else a) @ (b.T if b_transposed else b)
    np.testing.assert_allclose(run(module, *inputs, out=(m, n)), expected, rtol=1e-4, atol=1e-4)


def check_bias(backend: str, bias: np.ndarray, rows: int) -> None:
    a, b = random(rows, 64), random(64, 40, seed=1)
    program = Program()
    left, right, result = program.input(rows, 64), program.constant(b), program.output(rows, 40)
    module = product(backend, program, left, right, result, bias=program.constant(bias))
    np.testing.assert_allclose(run(module, a, out=(rows, 40)), a @ b + bias, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [33, 300])
@pytest.mark.parametrize("shape", [(1, 40), (1, 1)])
def test_a_row_of_bias(backend, shape, rows):
    check_bias(backend, random(*shape, seed=2), rows)


def test_a_batch_of_products_with_a_shared_operand(backend):
    a, b = random(2, 3, 8, 16), random(1, 3, 16, 4, seed=1)
    program = Program()
    left, right = program.input(2, 3, 8, 16), program.input(1, 3, 16, 4)
    module = product(backend, program, left, right, program.output(2, 3, 8, 4))
    np.testing.assert_allclose(run(module, a, b, out=(2, 3, 8, 4)), a @ b, rtol=1e-4, atol=1e-4)


def test_heads_are_strides_not_copies(backend):
    """Attention scores straight from (tokens, heads * size): batch and row strides of a view do the transpose."""
    tokens, heads, size = 10, 4, 8
    q, k = random(tokens, heads * size), random(tokens, heads * size, seed=1)
    program = Program()
    left = seen_as(program.input(*q.shape), [heads, tokens, size], [size, heads * size, 1])
    right = seen_as(program.input(*k.shape), [heads, size, tokens], [size, 1, heads * size])
    module = product(backend, program, left, right, program.output(heads, tokens, tokens))
    split = [x.reshape(tokens, heads, size).transpose(1, 0, 2) for x in (q, k)]
    expected = split[0] @ split[1].transpose(0, 2, 1)
    np.testing.assert_allclose(run(module, q, k, out=expected.shape), expected, rtol=1e-4, atol=1e-4)


def test_an_offset_picks_part_of_a_buffer(backend):
    a, b = random(6, 12), random(4, 5, seed=1)
    program = Program()
    part = seen_as(program.input(6, 12), [6, 4], [12, 1], offset=8 * 4)
    module = product(backend, program, part, program.constant(b), program.output(6, 5))
    np.testing.assert_allclose(run(module, a, out=(6, 5)), a[:, 8:] @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(
    runtime.why_unavailable("openblas") is not None, reason=str(runtime.why_unavailable("openblas"))
)
class TestGemm:
    @pytest.mark.parametrize("shape", [(300, 1), (300, 40), (40,)])
    def test_bias_broadcasts_like_numpy(self, shape):
        check_bias("openblas", random(*shape, seed=2), rows=300)

    @pytest.mark.parametrize("shape", [(4, 6, 5), (1, 6, 5), (4, 1, 5)])
    def test_alpha_scales_the_product_and_not_the_bias(self, shape):
        m, n, k = shape
        a, b, bias = random(m, k), random(k, n, seed=1), random(1, n, seed=2)
        program = Program()
        module = product(
            "openblas", program, program.input(m, k), program.constant(b), program.output(m, n),
            bias=program.constant(bias), alpha=0.25,
        )  # fmt: skip
        np.testing.assert_allclose(run(module, a, out=(m, n)), a @ b * 0.25 + bias, rtol=1e-4, atol=1e-4)

    def test_beta_keeps_what_the_result_holds(self):
        a, b = random(4, 5), random(5, 6, seed=1)
        program = Program()
        left, right, result = program.input(4, 5), program.constant(b), program.output(4, 6)
        program.step("gemm", {"a": left, "b": right, "c": result})
        module = product("openblas", program, left, right, result, beta=2.0)
        np.testing.assert_allclose(run(module, a, out=(4, 6)), 3 * (a @ b), rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("threads", [1, 2, 3])
    def test_sharing_the_work_changes_no_number(self, threads):
        a, b, bias = random(3, 200, 96), random(96, 130, seed=1), random(130, seed=2)
        before = runtime.num_threads()
        runtime.set_num_threads(threads)
        program = Program()
        module = product(
            "openblas", program, program.input(3, 200, 96), program.constant(b), program.output(3, 200, 130),
            bias=program.constant(bias),
        )  # fmt: skip
        result = run(module, a, out=(3, 200, 130))
        runtime.set_num_threads(before)
        np.testing.assert_allclose(result, a @ b + bias, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize(
        ("wrong", "reason"),
        [
            ({"a": ([4, 5], [10, 2])}, "'a' has neither contiguous rows nor contiguous columns"),
            ({"c": ([4, 6], [1, 4])}, "the rows of 'c' are not contiguous"),
            ({"b": ([6, 5], [5, 1])}, "a 4x5 times b 6x5 is not c 4x6"),
            ({"b": ([30], [1])}, "'b' has fewer than two dims"),
        ],
    )
    def test_a_refusal_names_the_operand(self, wrong, reason):
        program = Program()
        views = {"a": program.input(4, 10), "b": program.constant(random(5, 6)), "c": program.output(4, 6)}
        views["a"] = seen_as(views["a"], [4, 5], [10, 1])
        for name, (dims, strides) in wrong.items():
            views[name] = seen_as(views[name], dims, strides)
        with pytest.raises(ValueError, match=rf"main, step 0 \(gemm\): {reason}"):
            program.step("gemm", views).create("openblas")

    def test_only_float32(self):
        program = Program()
        views = {
            "a": program.input(4, 5, dtype="float16"),
            "b": program.input(5, 6),
            "c": program.output(4, 6),
        }
        with pytest.raises(ValueError, match="'a' is float16, gemm takes float32"):
            program.step("gemm", views).create("openblas")
