"""Names of ONNX values as names of variables."""

import pytest
from onnx import helper

from unity_collage.frontend.onnx.names import meanings, safe


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("conv1", "conv1"),
        ("/model/embed.in:0", "model_embed_in_0"),
        ("0", "v0"),
        ("lambda", "lambda_"),
        ("R", "R_"),
        ("隐藏", "u9690u85cf"),
        ("...", "value"),
    ],
)
def test_a_name_is_an_identifier(name: str, expected: str) -> None:
    assert safe(name) == expected
    assert safe(name).isidentifier()


def test_what_is_computed_from_a_value_is_found_in_any_order_of_nodes() -> None:
    nodes = [helper.make_node("Exp", ["b"], ["c"]), helper.make_node("Neg", ["a"], ["b"])]
    made = helper.make_model(helper.make_graph(nodes, "g", [], []))
    assert list(meanings(made, "a")) == ["a", "b", "c"]
