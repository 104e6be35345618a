"""RoundStorages: storages of a size that is known at run time are of few sizes.

TVM's pool gives a storage to a later value only if both have equally many pages, and it frees none. A program that is
called with many sizes, such as a decoder with a growing cache, would keep storages of each of them.

Reads    the module behind LowerAllocTensor.
Writes   the sizes of ``R.memory.alloc_storage`` that are not constant.
Keeps    the shapes of all tensors.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import IRModule

from ..graph.calls import op_name
from ..graph.shapes import ints

_PAGE_BITS = 12
"""The pool's sizes are multiples of 4096 bytes."""

_STEP_BITS = 2
"""There are four sizes from each power of two to the next one, so a storage is at most a quarter too large."""


@tvm.transform.module_pass(opt_level=0, name="RoundStorages")
class RoundStorages:
    """Round symbolic sizes of storages up to a multiple of a quarter of the power of two below.

    before: ``alloc_storage(R.shape([b]), ...)``    after: ``alloc_storage(R.shape([((b - 1) | mask) + 1]), ...)``
    """

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions: dict[ir.GlobalVar, ir.BaseFunc] = {
            gvar: tvm_ffi.structural_map(func, (relax.Call, _rounded))
            if isinstance(func, relax.Function)
            else func
            for gvar, func in mod.functions_items()
        }
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def size_class(nbytes: ir.Expr) -> ir.Expr:
    """The bytes of a storage for ``nbytes``, an int64 that is not negative: 0 for 0, whole pages otherwise.

    It is at most a quarter larger than ``nbytes`` in pages. There are four values between neighbouring powers of two.
    """
    smallest = 1 << (_PAGE_BITS + _STEP_BITS)
    zeros: Any = tirx.call_intrin("int32", "prim.clz", nbytes | tirx.const(smallest, "int64"))
    mask = tirx.const((1 << (63 - _STEP_BITS)) - 1, "int64") >> zeros.astype("int64")
    return ((nbytes - 1) | mask) + 1


def _rounded(call: relax.Call) -> relax.Call:
    if op_name(call) != "relax.memory.alloc_storage":
        return call
    shape: Any = call.args[0]
    if not isinstance(shape, relax.ShapeExpr) or ints(shape.values) is not None:
        return call
    sizes = relax.ShapeExpr([size_class(size) for size in shape.values])
    return relax.Call(call.op, [sizes, *call.args[1:]], call.attrs, call.ty_args, ret_ty=call.ty)
