"""Compiles functions of TVM one by one to object code, each under a symbol that is a digest of what it computes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import IRModule
from tvm.target import Target

from ..scratch import Scratch
from ..target import fields_of, target_of
from .object_store import current_store

_VERSION = 1
"""Raised when the same function would be compiled differently."""
_PREFIX = "collage_"
_LINKED_PREFIX = "__tvm_ffi_"
"""What TVM puts before the symbol of a function that takes packed arguments."""
_GLOBAL_SYMBOL = "global_symbol"
_CALL, _VARIABLE = "tirx.tvm_call_cpacked", "ir.GlobalVar"
"""Calls of other functions of a module: the operator, or the name of an operator as the callee."""
_FIRST = "0_declared_"
"""TVM compiles functions in the order of their symbols: a symbol with this prefix comes first."""
_NAMES = {"ir.Var": "name", "s_tir.SBlock": "name_hint"}
"""The names in the text of a function that change no code, by the type of their nodes."""


Functions = Mapping[ir.GlobalVar, tirx.PrimFunc]


@dataclass(frozen=True, slots=True)
class FunctionObject:
    """The object code of one function."""

    symbol: str
    """TVM finds the function by this name in the module that the code is loaded as."""
    code: bytes


def function_object(func: tirx.PrimFunc, target: Target) -> FunctionObject | None:
    """The object code of ``func``, from the store in use, else compiled now and stored.

    Equal functions have equal symbols, whatever their names. None if ``func`` calls others of its module, since it
    would not find them alone.
    """
    bare = func.without_attr(_GLOBAL_SYMBOL) if _GLOBAL_SYMBOL in (func.attrs or {}) else func
    text = tvm.ir.save_json(bare)
    if f'"{_VARIABLE}"' in text or f'"{_CALL}"' in text:
        return None
    digest = _digest([["", tvm_ffi.structural_hash(bare), _without_names(text)]], target)
    symbol = _PREFIX + digest
    named = {ir.GlobalVar(symbol): bare.with_attr(_GLOBAL_SYMBOL, symbol)}
    return FunctionObject(symbol, _code(digest, named, target))


def module_object(functions: Functions, symbols: Iterable[str], target: Target) -> bytes:
    """The object code of ``functions`` under their own symbols; they call each other, and those of ``symbols``."""
    called = sorted(symbols)
    parts = [
        [gvar.name_hint, tvm_ffi.structural_hash(func), _without_names(tvm.ir.save_json(func))]
        for gvar, func in functions.items()
    ]
    digest = _digest([called, *parts], target)
    declaring = _declaring(called, digest)
    return _code(digest, {ir.GlobalVar(f"{_FIRST}{digest}"): declaring, **functions}, target)


def unoptimised(target: Target) -> Target:
    """``target`` for functions that only call others.

    They take 2 ns a call longer. LLVM takes 0.2 s for 300 calls and 0.6 s for 600, in place of 1.2 and 9.9 s.
    """
    return target_of({**fields_of(target), "opt-level": 0})


def _declaring(symbols: Sequence[str], name: str) -> tirx.PrimFunc:
    """A function that is never called, which calls each of ``symbols`` as the linker names it.

    TVM declares a name that its module lacks without its prefix, and again for each call. This function comes first
    in the module, so TVM finds the declarations here.
    """
    calls = [tirx.Evaluate(tirx.call_cpacked(f"{_LINKED_PREFIX}{symbol}")) for symbol in symbols]
    body = tirx.SeqStmt(calls) if len(calls) > 1 else calls[0] if calls else tirx.Evaluate(0)
    return tirx.PrimFunc([], body).with_attrs({_GLOBAL_SYMBOL: f"{_FIRST}{name}", "s_tir": True})


def calls_variables(func: tirx.PrimFunc) -> bool:
    """Whether a function calls another by its global variable: TVM must know that one to write the call."""
    return f'"{_VARIABLE}"' in tvm.ir.save_json(func)


def with_calls_renamed(func: tirx.PrimFunc, symbols: Mapping[str, str]) -> tirx.PrimFunc:
    """``func`` with new names for the functions that it calls, by their names; others keep theirs."""

    def renamed(call: Any) -> Any:
        if not isinstance(call.op, ir.Op) or call.op.name != _CALL:
            return call
        name = str(call.args[0].value)
        return tirx.call_cpacked(symbols.get(name, name), *call.args[1:])

    return func.with_body(tvm_ffi.structural_map(func.body, (ir.Call, renamed)))


def _code(digest: str, functions: Functions, target: Target) -> bytes:
    store = current_store()
    code = store.get(digest)
    if code is None:
        code = _compiled(functions, target)
        store.put(digest, code)
    return code


def _compiled(functions: Functions, target: Target) -> bytes:
    with Scratch("object") as folder:
        path = Path(folder) / "functions.o"
        _library(functions, target).write_to_file(str(path), "o")
        return path.read_bytes()


def _library(functions: Functions, target: Target) -> Any:
    """The module of LLVM with ``functions``."""
    with target:
        return tvm.tirx.build(IRModule(dict(functions)), target=target, pipeline="default")


def _digest(functions: Sequence[Any], target: Target) -> str:
    """A digest of everything that the code of ``functions`` depends on.

    TVM's structural hash has only 64 bits, and leaves out names. So the text of the functions without names is added.
    """
    parts = [_VERSION, str(target), _compiler(), _settings(), *functions]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def _without_names(text: str) -> list[Any]:
    """The nodes of a function, which is JSON, without names and without places in a source."""
    nodes: list[dict[str, Any]] = json.loads(text)["nodes"]
    for node in nodes:
        data = node.get("data")
        if isinstance(data, dict):
            data.pop("span", None)
            name = data.pop(_NAMES.get(node["type"]), None)
            if name is not None:
                nodes[name] = {"type": "name"}
        if node["type"] in ("ir.Span", "ir.SourceName"):
            node.pop("data", None)
    return nodes


@cache
def _compiler() -> str:
    version = tvm.get_global_func("target.llvm_version_major")()
    return f"TVM {tvm.__version__}, LLVM {version}"


def _settings() -> str:
    """The options of TVM's passes that are in scope."""
    context = tvm.transform.PassContext.current()
    config: Mapping[str, Any] = context.config
    return f"{context.opt_level} {sorted((key, str(value)) for key, value in config.items())}"
