"""The table of converters says of every operator of the standard what becomes of it."""

from __future__ import annotations

import onnx
import pytest

from unity_collage.frontend.onnx import table


def standard() -> list[str]:
    """The operators of ai.onnx that are not withdrawn."""
    return sorted({s.name for s in onnx.defs.get_all_schemas() if s.domain == "" and not s.deprecated})


@pytest.mark.parametrize("op", standard())
def test_an_operator_is_converted_or_defined_or_refused(op: str) -> None:
    places = [op in table.STANDARD, op in table.BY_DEFINITION, op in table.REFUSED]
    assert sum(places) == 1


def test_the_table_has_no_operators_that_the_standard_does_not_have() -> None:
    known = {s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""}
    assert set(table.REFUSED) | set(table.BY_DEFINITION) <= known


@pytest.mark.parametrize("op", sorted(table.BY_DEFINITION))
def test_what_is_converted_by_definition_has_one(op: str) -> None:
    schema = onnx.defs.get_schema(op)
    assert schema.has_function or schema.has_context_dependent_function
