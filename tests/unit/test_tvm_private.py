"""The names that TVM calls private and we use are there, and only in the one file that lists them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import tvm
from tvm import ir, relax, tirx
from tvm.relax.backend.pattern_registry import get_pattern, register_patterns
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.transform import FusionPattern

import unity_collage
from unity_collage import tvm_private
from unity_collage.testing import graphs

PACKAGE = Path(unity_collage.__file__).parent


def test_an_operator_can_be_registered() -> None:
    tvm_private.register_operator("relax.collage.of_this_test", "nothing")
    assert "relax.collage.of_this_test" in ir.Op.list_op_names()


def test_a_global_variable_gets_a_type() -> None:
    gvar = ir.GlobalVar("kernel")
    tvm_private.give_type(gvar, relax.TupleType([]))
    assert isinstance(gvar.ty, relax.TupleType)


def test_a_kernel_is_a_workload_of_the_tuner() -> None:
    legal = relax.transform.LegalizeOps()(tvm.IRModule({"main": graphs.chain()}))
    kernel = next(func for func in legal.functions.values() if isinstance(func, tirx.PrimFunc))
    (normal,) = tvm_private.tuning_workload(kernel).functions.values()
    assert isinstance(normal, tirx.PrimFunc)


def test_patterns_can_be_removed() -> None:
    name = "of_this_test.relu"
    register_patterns([FusionPattern(name, is_op("relax.nn.relu")(wildcard()))])
    assert get_pattern(name) is not None
    tvm_private.remove_patterns([name])
    assert get_pattern(name) is None


def test_open_blocks_of_a_builder_are_ended() -> None:
    builder = relax.BlockBuilder()
    builder._begin_binding_block()
    builder._begin_dataflow_block()
    tvm_private.end_open_blocks(builder)
    with pytest.raises(tvm.error.InternalError):
        builder._end_block()


def test_a_function_can_be_abandoned() -> None:
    builder = relax.BlockBuilder()
    with builder.function("outer", []):
        with pytest.raises(ValueError), builder.function("inner", []):
            tvm_private.abandon_function(builder)
            raise ValueError
        builder.emit_func_output(relax.Tuple([]))
    assert [gvar.name_hint for gvar in builder.get().get_global_vars()] == ["outer"]


def test_functions_of_the_virtual_machine_are_linked_with_a_library_that_is_there() -> None:
    param = relax.Var("x", relax.TensorType((2,), "float32"))
    main = relax.Function([param], relax.SeqExpr([], param), param.ty).with_attr("global_symbol", "main")
    builder = relax.ExecBuilder()
    functions = tvm_private.vm_functions(builder, ir.IRModule({"main": main}))
    library = tvm.tirx.build(ir.IRModule(functions), target="llvm")
    linked = tvm_private.vm_link(builder, tvm.target.Target("llvm"), library, {})
    assert [module.kind for module in linked.imports] == ["llvm"]


def test_sessions_of_a_server_are_answered_by_another_function(monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm.rpc import server

    monkeypatch.setattr(server, "_serving", server._serving)
    tvm_private.answer_sessions_with(print)
    assert "_serving" in server._listen_loop.__code__.co_names and server._serving is print
    assert inspect.signature(server._serve_loop).parameters.keys() == {"sock", "load_library", "work_path"}


def test_no_other_file_reaches_for_them() -> None:
    used = re.compile(r"(?:\b(?:tvm|ir|relax|tirx)(?:\.\w+)*\._(?!_)\w+)|(?:from tvm[\w.]* import _\w+)")
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for line in path.read_text().splitlines()
        if used.search(line) and not line.strip().startswith("#")
    }
    assert found == {"tvm_private.py"}
