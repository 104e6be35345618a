"""The switch between variants compares the shapes of all operands at once, and refuses what it refused before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tvm
from tvm import ir, relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm_ffi import structural_walk

from unity_collage.graph.variants import UpTo, sizes_of, variants_in
from unity_collage.lowering.build import build, finish, lower
from unity_collage.passes import MakeVariants
from unity_collage.sizes.switch import switch
from unity_collage.target import host_target
from unity_collage.tvm_private import give_type

MATCH, CHECK = "vm.builtin.match_shape", "vm.builtin.check_tensor_info"


@I.ir_module
class Sums:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n + 1", "m"), "float32")) -> R.Tensor(
        ("n + 1", "m"), "float32"
    ):
        with R.dataflow():
            z = R.add(R.sum(x), y)
            R.output(z)
        return z


def finished(mod: IRModule) -> IRModule:
    """A module after the last pass."""
    lowered = lower(mod, host_target())
    with host_target():
        return finish(lowered, host_target())(lowered)


def called(expr: relax.Expr) -> list[str]:
    """The names of the external functions that are called anywhere in an expression."""
    found: list[relax.ExternFunc] = []
    structural_walk(expr, (relax.ExternFunc, found.append))
    return [str(each.global_symbol) for each in found]


def levels(main: relax.Function) -> Iterator[list[str]]:
    """The external functions that each level of the switch calls itself, and at last those of the last branch."""
    seq = main.body
    while True:
        *before, last = [binding for block in seq.blocks for binding in block.bindings]
        yield [name for binding in before for name in called(binding.value)]
        if not isinstance(last.value, relax.If):
            return
        assert not called(last.value.true_branch)
        seq = last.value.false_branch


def with_smaller_sizes(mod: IRModule) -> IRModule:
    """A module with variants, and one more function for small products of sizes."""
    smaller, limit = ir.GlobalVar("main_smaller_sizes"), UpTo(("n", "m"), 12)
    give_type(smaller, mod["main_any_size"].ty)
    variants = [(sizes_of(mod[name]), mod.get_global_var(name)) for name in variants_in(mod)]
    functions = dict(mod.functions_items()) | {
        smaller: relax.utils.copy_with_new_vars(mod["main_any_size"]),
        mod.get_global_var("main"): switch(
            mod["main"], [*variants, (limit, smaller)], mod.get_global_var("main_any_size")
        ),
    }
    return relax.transform.Normalize()(IRModule(functions))


def test_a_function_for_smaller_sizes_comes_behind_the_comparisons() -> None:
    mod = with_smaller_sizes(MakeVariants({"n": [1, 2], "m": [3]})(Sums))
    first, second, *_ = levels(finished(mod)["main"])
    assert (first, second) == ([CHECK, CHECK], [])
    vm = relax.VirtualMachine(build(mod, host_target()), tvm.cpu())
    for n, m in ((1, 3), (2, 3), (1, 5), (3, 4), (4, 4), (2, 4), (7, 9)):
        x, y = np.ones((n, 4), np.float32), np.arange((n + 1) * m, dtype=np.float32).reshape(n + 1, m)
        result = vm["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y)).numpy()
        np.testing.assert_array_equal(result, y + 4 * n)


def test_shapes_are_compared_first_and_sizes_are_read_for_other_shapes_only() -> None:
    mod = finished(MakeVariants({"n": [1, 2], "m": [3]})(Sums))
    first, second, last = levels(mod["main"])
    assert (first, second) == ([CHECK, CHECK], [])
    assert MATCH in last and "vm.builtin.make_prim_value" not in last
    for variant in ("main_n_1_m_3", "main_n_2_m_3"):
        assert not {MATCH, CHECK} & set(called(mod[variant].body))
    assert {MATCH, CHECK} <= set(called(mod["main_any_size"].body))
    assert not [gvar for gvar in mod.get_global_vars() if "symbolic_expr" in gvar.name_hint]


def test_variants_with_free_sizes_check_them_and_the_switch_reads_sizes() -> None:
    mod = finished(MakeVariants({"n": [1]})(Sums))
    assert "vm.builtin.make_prim_value" in called(mod["main"].body)
    names = called(mod["main_n_1"].body)
    assert names.count(CHECK) == 1, "that of the operand with a free size"


def test_a_variant_of_other_sizes_than_it_says_checks_its_operands() -> None:
    checks_both("main_n_1_m_3", "collage.sizes", {"n": 2, "m": 3})


def test_variants_that_are_called_in_another_order_check_their_operands() -> None:
    checks_both("main", "collage.switch", ["main_n_2_m_3", "main_n_1_m_3", "main_any_size"])


def checks_both(name: str, attribute: str, value: object) -> None:
    """The variants check both operands themselves if a function has this attribute."""
    mod = MakeVariants({"n": [1, 2], "m": [3]})(Sums)
    mod.update_func(mod.get_global_var(name), mod[name].with_attr(attribute, value))
    names = called(finished(mod)["main_n_1_m_3"].body)
    assert names.count(CHECK) == names.count(MATCH) == 2


OPERANDS = [
    ((1, 4), (2, 3), "float32"),  # a variant
    ((2, 4), (3, 3), "float32"),  # another one
    ((5, 4), (6, 3), "float32"),  # between them
    ((1, 5), (2, 3), "float32"),
    ((1, 4), (3, 3), "float32"),
    ((1, 4), (2, 3, 1), "float32"),
    ((1,), (2, 3), "float32"),
    ((1, 4), (2, 3), "float64"),
]


@pytest.mark.parametrize("mode", ["compiled", "bytecode"])
def test_each_shape_has_the_result_or_the_error_of_the_stock_pipeline(mode: str) -> None:
    target, mod = host_target(), MakeVariants({"n": [1, 2], "m": [3]})(Sums)
    if mode == "compiled":
        ours = build(mod, target)
    else:
        lowered = lower(mod, target)
        ours = relax.build(lowered, target, relax_pipeline=finish(lowered, target), exec_mode=mode)
    machines = [relax.VirtualMachine(each, tvm.cpu()) for each in (ours, relax.build(mod, target))]
    for *shapes, dtype in OPERANDS:
        tensors = [tvm.runtime.tensor(np.ones(shape, dtype)) for shape in shapes]
        found, right = (outcome(machine, *tensors) for machine in machines)
        assert found == right
    assert outcome(machines[0], None, tensors[1]) == outcome(machines[1], None, tensors[1])


def outcome(machine: relax.VirtualMachine, *operands: tvm.runtime.Tensor | None) -> object:
    """The result of a call as a list, or the type of its error and what it says."""
    try:
        return machine["main"](*operands).numpy().tolist()
    except Exception as error:  # its type is part of what is compared
        return type(error), str(error)
