"""Digests of models: of files without parsing them, and of modules."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import is_of_user

if TYPE_CHECKING:
    from tvm import relax
    from tvm.ir import IRModule

_PIECE_BYTES = 1 << 20


def digest_of_file(path: str | Path) -> str | None:
    """The digest of a file's content; None where it cannot be read."""
    try:
        status = Path(path).stat()
        state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        return _digest_of_file(str(Path(path).absolute()), *state)
    except OSError as error:
        if is_of_user(error):
            raise
        return None


@lru_cache(maxsize=64)
def _digest_of_file(path: str, *_state: int) -> str:
    """Read once in a process for each state of the file."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def digest_of_protobuf(model: Any) -> str | None:
    """The digest of an ``onnx.ModelProto``; None where it is too large for one message."""
    try:
        return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
    except Exception:  # the errors of protobuf have no common base class
        return None


def digest_of_module(mod: IRModule, names: Iterable[str]) -> str | None:
    """The digest of a module; ``names``: those of the inputs and results of ``main``.

    None if the module holds values without comparable content, such as a compiled module.
    """
    from tvm import relax
    from tvm_ffi import structural_hash

    digest = hashlib.sha256()
    try:
        # It covers operators, types and attributes. Names of variables are not in it, and are in signatures and plans.
        digest.update(f"{structural_hash(mod)} {list(names)}".encode())
    except Exception:  # whatever an object without a hash raises
        return None
    for gvar, func in sorted(mod.functions_items(), key=lambda item: item[0].name_hint):
        digest.update(f"\n{gvar.name_hint}".encode())
        if isinstance(func, relax.Function):
            _add(digest, func)
    return digest.hexdigest()


def _add(digest: Any, func: relax.Function) -> None:
    """Add the names of variables and the values of constants."""
    from tvm import ir, relax

    def add(expr: Any) -> None:
        if isinstance(expr, relax.Var):
            digest.update(f" {expr.name}".encode())
        elif isinstance(expr, ir.GenericConst) and isinstance(expr.ty, relax.TensorType):
            digest.update(f" {expr.ty}".encode())
            digest.update(expr.value.numpy().tobytes())

    for param in func.params:
        add(param)
    relax.analysis.post_order_visit(func, add)
