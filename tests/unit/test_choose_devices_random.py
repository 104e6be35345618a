"""ChooseDevices on random graphs: brute force over all devices finds nothing cheaper, and the numbers stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import tvm
from choosing_devices import DEVICES, CostOfSeveral, chosen, place
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op

from unity_collage import reference
from unity_collage.annotations import FREELY_PLACED
from unity_collage.errors import CollageError
from unity_collage.graph.calls import op_name
from unity_collage.graph.dataflow import used_vars
from unity_collage.passes import PlanDevices
from unity_collage.plan.placed import ID, TARGET

OPS: dict[str, Callable[[Any, Any], relax.Expr]] = {
    "relu": lambda a, _: op.nn.relu(a),
    "tanh": lambda a, _: op.tanh(a),
    "add": op.add,
    "multiply": op.multiply,
}

Step = tuple[str, int, int, bool]
"""An operator, its operands among the values so far, and whether its result is a result of the function."""


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    """Steps on the values so far; a hint has a device in place of a second operand."""
    steps: list[Step] = []
    for number in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from([*OPS, *OPS, "hint"]))
        second = len(DEVICES) - 1 if kind == "hint" else number + 1
        operands = draw(st.integers(0, number + 1)), draw(st.integers(0, second))
        steps.append((kind, *operands, draw(st.booleans())))
    return steps


@st.composite
def costs(draw: st.DrawFn) -> CostOfSeveral:
    """Whole seconds, so that sums are exact."""
    seconds = st.integers(0, 6).map(float)
    table = {kind: {device: draw(seconds) for device in DEVICES} for kind in OPS}
    numbers = [device.split(":")[1] for device in DEVICES]
    pairs = [f"cpu:{a}>cpu:{b}" for a in numbers for b in numbers if a != b]
    return CostOfSeveral(table=table, copy={pair: draw(seconds) for pair in pairs})


def module(steps: list[Step]) -> IRModule:
    devices = [
        relax.VDevice({"kind": "llvm", **({} if cpu == "llvm" else {"mcpu": cpu})}, int(number))
        for cpu, number in (device.split(":") for device in DEVICES)
    ]
    params = [relax.Var(name, relax.TensorType((2, 3), "float32")) for name in ("x", "y")]
    values: list[relax.Expr] = list(params)
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            results = []
            for kind, first, second, is_result in steps:
                if kind == "hint":
                    made = op.hint_on_device(values[first], tvm.cpu(second))
                else:
                    made = OPS[kind](values[first], values[second])
                values.append(builder.emit(made))
                results += [builder.emit_output(values[-1])] if is_result else []
            results = results or [builder.emit_output(values[-1])]
        builder.emit_func_output(relax.Tuple(results))
    mod = builder.get()
    return IRModule(mod.functions, global_infos={"vdevice": devices})


def bindings(mod: IRModule) -> Iterator[relax.Binding]:
    return (binding for block in mod["main"].body.blocks for binding in block.bindings)


def kernel_seconds(model: CostOfSeveral, value: relax.Expr, device: str) -> float:
    name = (op_name(value) or "").split(".")[-1]
    return model.table[name][device] if name in model.table else 0.0


def copy_seconds(model: CostOfSeveral, source: str, destination: str) -> float:
    assert not isinstance(model.copy, float)
    pair = "cpu:{}>cpu:{}".format(*(device.split(":")[1] for device in (source, destination)))
    return 0.0 if source == destination else model.copy[pair]


def least_seconds(mod: IRModule, model: CostOfSeveral) -> float:
    """The cheapest of all choices of devices for a planned module, after the words of the documents alone."""
    func, every = mod["main"], list(bindings(mod))
    groups = FREELY_PLACED.read(func) if FREELY_PLACED.on(func) else ()
    free = {name for group in groups if {ID, TARGET} <= set(group.free) for name in group.values}
    home = {var: place(var.ty.vdevice) for var in (*func.params, *(b.var for b in every))}
    kernels = [b for b in every if isinstance(b.value, relax.Call)]
    assert all(isinstance(b.value, (relax.Call, relax.Var)) for b in every)
    names = {b.var: b.value for b in every if isinstance(b.value, relax.Var)}

    def origin(var: relax.Var) -> relax.Var:
        return origin(names[var]) if var in names else var

    options = [DEVICES if b.var.name in free else (home[b.var],) for b in kernels]
    best = float("inf")
    for devices in product(*options):
        on = {
            **{param: home[param] for param in func.params},
            **{b.var: d for b, d in zip(kernels, devices, strict=True)},
        }
        reads = {
            (origin(var), d) for b, d in zip(kernels, devices, strict=True) for var in used_vars(b.value)
        }
        seen = [b.var for b in every if not isinstance(b.var, relax.DataflowVar)]
        reads |= {(origin(var), home[var]) for var in seen}
        seconds = sum(kernel_seconds(model, b.value, d) for b, d in zip(kernels, devices, strict=True))
        best = min(best, seconds + sum(copy_seconds(model, on[var], d) for var, d in reads))
    return best


def seconds_of(mod: IRModule, model: CostOfSeveral) -> float:
    """What the kernels and copies of a module cost where they are."""
    total = 0.0
    for binding in bindings(mod):
        value, here = binding.value, place(binding.var.ty.vdevice)
        if op_name(value) == "relax.to_vdevice":
            total += copy_seconds(model, place(value.args[0].ty.vdevice), here)
        elif isinstance(value, relax.Call):
            assert all(place(arg.ty.vdevice) == here for arg in value.args)
            total += kernel_seconds(model, value, here)
    return total


@given(programs(), costs())
@settings(max_examples=20)
def test_brute_force_agrees(steps: list[Step], model: CostOfSeveral) -> None:
    try:
        planned = PlanDevices()(module(steps))
    except CollageError:  # two hints disagree
        reject()
    found, plans = chosen(planned, model, is_planned=True)
    least = least_seconds(planned, model)
    assert abs(seconds_of(found, model) - least) < 1e-9
    if plans:
        assert abs(plans[0].seconds - least) < 1e-9 and plans[0].proved
        assert len(plans[0].copies) == sum(op_name(b.value) == "relax.to_vdevice" for b in bindings(found))
    inputs = [np.random.default_rng(i).standard_normal((2, 3)).astype("float32") for i in range(2)]
    before, after = (reference.run(mod["main"], inputs) for mod in (planned, found))
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
