"""What the tests of Prepare share: run some rules alone, compare with what is expected, compare the numbers."""

from __future__ import annotations

import zlib

import numpy as np
import tvm
from tvm import relax
from tvm.ir import IRModule

from unity_collage import reference
from unity_collage.annotations import UNRECOGNISED
from unity_collage.passes.prepare import Prepare
from unity_collage.plan.unrecognised import Unrecognised
from unity_collage.rewrites import Rewrite


def module(source: relax.Function | IRModule) -> IRModule:
    """A function as the ``main`` of a module; a module as it is."""
    if isinstance(source, IRModule):
        return source
    return IRModule({"main": source.with_attr("global_symbol", "main")})


def prepared(source: relax.Function | IRModule, *rules: Rewrite) -> IRModule:
    """``source`` after Prepare with just these rules, without what they say of near misses."""
    return plain(Prepare(rules=rules)(module(source)))


def plain(mod: IRModule) -> IRModule:
    """``mod`` without the near misses that Prepare leaves on its functions."""
    functions = {
        gvar: func.without_attr(UNRECOGNISED.name) if UNRECOGNISED.on(func) else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def near_misses(source: relax.Function | IRModule, *rules: Rewrite) -> tuple[Unrecognised, ...]:
    """What ``rules`` leave on ``main``: where they found the beginning of their form, and why they stopped."""
    main = Prepare(rules=rules)(module(source))["main"]
    return UNRECOGNISED.read(main) if UNRECOGNISED.on(main) else ()


def assert_becomes(
    before: relax.Function | IRModule,
    after: relax.Function | IRModule,
    *rules: Rewrite,
    tolerance: float = 1e-5,
) -> None:
    """``rules`` make ``after`` of ``before``, and both compute the same."""
    result = prepared(before, *rules)
    tvm.ir.assert_structural_equal(result, module(after))
    inputs = [example(param) for param in result["main"].params]
    if all(value is not None for value in inputs):
        old = reference.run(module(before)["main"], inputs, module(before))
        new = reference.run(result["main"], inputs, result)
        for a, b in zip(old, new, strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def assert_stays(source: relax.Function | IRModule, *rules: Rewrite) -> None:
    """``rules`` find nothing to do."""
    tvm.ir.assert_structural_equal(prepared(source, *rules), module(source))


def example(param: relax.Var) -> np.ndarray | None:
    """A value for a parameter of static shape, the same in every run; None for others."""
    shape = getattr(param.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr) or not all(
        isinstance(dim, tvm.tirx.IntImm) for dim in shape.values
    ):
        return None
    rng = np.random.default_rng(zlib.crc32(param.name.encode()))
    dims = [int(dim) for dim in shape.values]
    return (3 * rng.standard_normal(dims)).astype(str(param.ty.dtype))


def values(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Weights for a test: small, of both signs, never zero or one."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7 % 11 - 5.25) / 8).reshape(shape).astype(dtype)
