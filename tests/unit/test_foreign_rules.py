"""The bridge: what TVM's own tables say is a backend like any other."""

from __future__ import annotations

from importlib import import_module

import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.backend import _ffi_api, get_patterns_with_prefix
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.transform import FusionPattern
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, DECLINED
from unity_collage.backends import registry
from unity_collage.backends.foreign import bridge
from unity_collage.backends.foreign.pattern_match import Matcher
from unity_collage.backends.foreign.rules import OperatorAttributes, PatternTable
from unity_collage.errors import CollageError, UnavailableBackend
from unity_collage.graph import DataflowGraph, index_set
from unity_collage.passes import AnnotateCandidates
from unity_collage.rules import Declined, Found
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.foreign_backend import foreign_backend


@I.ir_module
class Model:
    @R.function
    def main(
        x: R.Tensor((4, 16), "float32"), w: R.Tensor((16, 8), "float32"), b: R.Tensor((8,), "float32")
    ) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            product = R.matmul(x, w)
            biased = R.add(product, b)
            positive = R.nn.relu(biased)
            grown = R.exp(positive)
            R.output(grown)
        return grown


def biased_product(name: str, check=None, attrs=None) -> FusionPattern:
    left, right, bias = wildcard(), wildcard(), wildcard()
    root = is_op("relax.add")(is_op("relax.matmul")(left, right), bias)
    return FusionPattern(name, root, {"root": root, "lhs": left, "bias": bias}, check, attrs)


def single(name: str, op: str, check=None) -> FusionPattern:
    return FusionPattern(name, is_op(op)(wildcard()), {}, check)


def no_modules(_functions, _options, _constants) -> list:
    return []


def applied(rule, func: relax.Function) -> list[Found | Declined]:
    return list(rule.apply(DataflowGraph(func)))


def annotated(mod: IRModule, *names: str) -> relax.Function:
    with only_backends(), Target("llvm"):
        return AnnotateCandidates(names or None)(mod)["main"]


def test_patterns_and_a_code_generator_are_a_backend_by_default() -> None:
    patterns = [biased_product("theirs.dense_bias"), single("theirs.relu", "relax.nn.relu")]
    with foreign_backend("theirs", patterns, codegen=no_modules):
        found = CANDIDATES.read(annotated(Model))
    assert [(c.backend, c.label, c.indexes, c.composites) for c in found if c.backend != "tvm"] == [
        ("theirs", "relu", (2,), (("theirs.relu", (2,)),)),
        ("theirs", "dense_bias", (0, 1), (("theirs.dense_bias", (0, 1)),)),
    ]


def test_overlapping_matches_of_several_patterns_are_all_offered() -> None:
    patterns = [biased_product("theirs.dense_bias"), single("theirs.relu", "relax.nn.relu")]
    chain = FusionPattern("theirs.relu_exp", is_op("relax.exp")(is_op("relax.nn.relu")(wildcard())))
    with foreign_backend("theirs", [*patterns, chain]):
        found = applied(PatternTable("theirs"), Model["main"])
    assert {f.label: f.inside for f in found} == {"relu_exp": 0b1100, "relu": 0b100, "dense_bias": 0b11}


def test_the_table_is_read_by_each_apply_and_not_cached() -> None:
    rule = PatternTable("theirs")
    assert applied(rule, Model["main"]) == [] and bridge.find("theirs") is None
    with foreign_backend("theirs", [single("theirs.relu", "relax.nn.relu")]):
        assert len(applied(rule, Model["main"])) == 1
    assert rule == PatternTable("theirs") and hash(rule) == hash(PatternTable("theirs"))


def test_a_prefix_is_a_whole_word() -> None:
    with foreign_backend("theirs_too", [single("theirs_too.relu", "relax.nn.relu")]):
        assert applied(PatternTable("theirs"), Model["main"]) == []


def test_a_check_that_returns_false_is_a_refusal_that_names_the_pattern() -> None:
    with foreign_backend(
        "theirs", [biased_product("theirs.dense", lambda _context: False)], None, no_modules
    ):
        refusals = DECLINED.read(annotated(Model))
    assert [(r.index, r.reason) for r in refusals if r.backend == "theirs"] == [
        (1, "the check of pattern theirs.dense says no")
    ]


def test_a_check_that_fails_is_a_refusal() -> None:
    def check(_context) -> bool:
        raise KeyError("m")

    with foreign_backend("theirs", [single("theirs.relu", "relax.nn.relu", check)]):
        (refusal,) = applied(PatternTable("theirs"), Model["main"])
    assert refusal.reason.startswith("the check of pattern theirs.relu failed: ")


def test_a_check_sees_what_fuse_ops_by_pattern_shows_it() -> None:
    def shown(context) -> tuple:
        return (
            context.matched_expr.op.name,
            {name: str(expr) for name, expr in context.annotated_expr.items() if name != "root"},
            sorted(var.name for var in context.matched_bindings),
            {var.name: [user.name for user in users] for var, users in context.var_usages.items() if users},
            context.value_to_bound_var[context.matched_expr].name,
        )

    seen: list[tuple] = []

    def check(context) -> bool:
        seen.append(shown(context))
        return True

    pattern = biased_product("theirs.dense", check)
    with foreign_backend("theirs", [pattern]):
        applied(PatternTable("theirs"), Model["main"])
        relax.transform.FuseOpsByPattern([pattern])(Model)
    assert len(seen) == 2 and seen[0] == seen[1]


def test_an_intermediate_value_that_is_read_elsewhere_is_refused() -> None:
    chain = FusionPattern("theirs.relu_exp", is_op("relax.exp")(is_op("relax.nn.relu")(wildcard())))
    with foreign_backend("theirs", [chain]):
        (refusal,) = applied(PatternTable("theirs"), graphs.diamond())
    assert isinstance(refusal, Declined) and "2 exits" in refusal.reason


def test_dynamic_shapes_are_refused() -> None:
    @I.ir_module
    class Dynamic:
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            with R.dataflow():
                a = R.nn.relu(x)
                R.output(a)
            return a

    with foreign_backend("theirs", [single("theirs.relu", "relax.nn.relu")]):
        (refusal,) = applied(PatternTable("theirs"), Dynamic["main"])
    assert refusal.reason == "a has no static shape: (n)"


def test_attributes_of_a_pattern_are_those_of_its_match() -> None:
    def attrs(annotated) -> dict:
        return {"rows": int(annotated["lhs"].ty.shape.values[0]), "kernel": "fast"}

    graph = DataflowGraph(Model["main"])
    with foreign_backend("theirs", [biased_product("theirs.dense", attrs=attrs)]):
        assert bridge.composite_attrs("theirs.dense", graph, index_set((0, 1))) == {
            "rows": 4,
            "kernel": "fast",
        }
        assert bridge.composite_attrs("theirs.dense", graph, index_set((1,))) == {}
    assert bridge.composite_attrs("theirs.dense", graph, index_set((0, 1))) == {}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (True, None),
        (None, None),
        (False, "target.theirs of relax.nn.relu says no"),
        ("only square ones", "only square ones"),
    ],
)
def test_predicates_of_operators_answer_with_a_bool_or_a_reason(answer, reason: str | None) -> None:
    with foreign_backend("theirs", predicates={"relax.nn.relu": lambda _call: answer}, codegen=no_modules):
        (said,) = applied(OperatorAttributes("theirs"), Model["main"])
        assert registry.get("theirs").name in registry.every()
    assert (said.reason if isinstance(said, Declined) else None) == reason
    assert said == (Found(0b100, "operator", "relu") if reason is None else said)


def test_a_predicate_that_fails_is_a_refusal() -> None:
    def predicate(_call) -> bool:
        raise ValueError("bad luck")

    with foreign_backend("theirs", predicates={"relax.nn.relu": predicate}):
        (said,) = applied(OperatorAttributes("theirs"), Model["main"])
    assert "the predicate target.theirs of relax.nn.relu failed" in said.reason


def test_patterns_without_a_code_generator_say_so_and_are_not_offered() -> None:
    with foreign_backend("theirs", [single("theirs.relu", "relax.nn.relu")]):
        assert (
            registry.get("theirs").why_unavailable() == "there is no code generator relax.ext.theirs in TVM"
        )
        assert {c.backend for c in CANDIDATES.read(annotated(Model))} == {"tvm"}
        with pytest.raises(
            UnavailableBackend, match=r"theirs cannot be used here: there is no code generator"
        ):
            annotated(Model, "theirs")


def test_the_fingerprint_changes_with_the_patterns() -> None:
    relu, exp = single("theirs.relu", "relax.nn.relu"), single("theirs.exp", "relax.exp")
    with foreign_backend("theirs", [relu]):
        first = registry.get("theirs").fingerprint()
        assert first == registry.get("theirs").fingerprint()
    with foreign_backend("theirs", [relu, exp]):
        assert registry.get("theirs").fingerprint() != first
    assert first.startswith(f"theirs of tvm {tvm.__version__}")


def test_a_backend_and_a_pattern_table_of_one_name_name_both_origins() -> None:
    theirs = fake_backend("theirs", "relax.nn.relu")
    patterns = [single("theirs.relu", "relax.nn.relu")]
    expected = r"two backends are named 'theirs': .*, one of TVM's pattern table \(theirs\.relu\)"
    with foreign_backend("theirs", patterns), only_backends(theirs), Target("llvm"):
        for names in (None, ("theirs",)):
            with pytest.raises(CollageError, match=expected):
                AnnotateCandidates(names)(Model)


def test_a_backend_and_predicates_of_one_name_name_both_origins() -> None:
    theirs = fake_backend("theirs", "relax.nn.relu")
    expected = r"one of the operator attribute target\.theirs \(relax\.exp\)"
    with (
        foreign_backend("theirs", predicates={"relax.exp": lambda _call: True}),
        only_backends(theirs),
        pytest.raises(CollageError, match=expected),
    ):
        registry.select(None, Target("llvm"))


@pytest.fixture(scope="module")
def tables() -> dict[str, list[FusionPattern]]:
    """The patterns that come with TVM, taken out of its global table again."""
    found = {}
    for name, module in (("cublas", "cuda.cublas"), ("example_npu", "contrib.example_npu.patterns")):
        import_module(f"tvm.relax.backend.{module}")
        found[name] = list(get_patterns_with_prefix(f"{name}."))
        _ffi_api.RemovePatterns([pattern.name for pattern in found[name]])
    return found


@pytest.mark.parametrize("name", ["cublas", "example_npu"])
def test_what_the_stock_pass_groups_is_among_the_candidates(
    name: str, tables: dict[str, list[FusionPattern]]
) -> None:
    """With the tables of TVM itself and their own checks."""
    with foreign_backend(name, tables[name]), Target("llvm"):
        offered = {
            f.nested[0].label for f in applied(PatternTable(name), Model["main"]) if isinstance(f, Found)
        }
        grouped = relax.transform.FuseOpsByPattern(tables[name])(Model)
    stock = {f.attrs["Composite"] for f in grouped.functions.values() if "Composite" in f.attrs}
    assert stock and stock <= offered


def test_wrapped_patterns_join_only_their_operators() -> None:
    """A pattern that says more of an operand (its shape) does not draw the operand's producer in."""
    operand = wildcard().has_shape((4, 8))
    pattern = FusionPattern("theirs.exp", is_op("relax.exp")(operand))
    graph = DataflowGraph(Model["main"])
    match = Matcher(graph).match(pattern, graph.nodes[3])
    assert match is not None and match.inside == 0b1000
