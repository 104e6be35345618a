"""The memory of a program, read from the module in which TVM has planned it.

The values of a module behind KillAfterLastUse are in storages. A storage is allocated once. It is free as soon as
all variables that refer to it or to a tensor in it are killed. So the bytes at each kernel follow from the order of
the bindings alone. Kernels of both branches of an ``If`` are listed, and its result is as large as the larger one. A
function that calls itself is listed once: what it holds further down counts as one value of unknown size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax
from tvm.ir import IRModule
from tvm.target import Target

from ..annotations import EXTERNAL_MODS
from ..devices.table import label_of
from ..graph.calls import op_name
from ..graph.in_place import VIEWS
from ..graph.shapes import ints, nbytes_of, shape_of
from ..plan.memory import MemorySpace, PlanMemory, in_pages
from .shared_memory import TO_CPU
from .temporaries import LibraryMemory, library_memory, temporaries_of

_ATTRIBUTE = "collage_memory"
_KILLS = frozenset({"relax.memory.kill_tensor", "relax.memory.kill_storage", "relax.vm.kill_object"})
_SAME_MEMORY = frozenset(
    {*VIEWS, "relax.memory.alloc_tensor", "vm.builtin.reshape", "vm.builtin.ensure_zero_offset", TO_CPU}
)
"""Calls with a result that refers to the memory of the first operand."""
_STORAGE = "relax.memory.alloc_storage"
_COPY = "relax.to_vdevice"

Place = tuple[int, str]
"""The number of a virtual device, and a memory scope."""


def held_by(executable: Any) -> Mapping[str, PlanMemory]:
    """The memory of each function of an executable that :func:`.build.link` has made; empty for others."""
    return getattr(executable, _ATTRIBUTE, {})


def with_memory(executable: Any, memory: Mapping[str, PlanMemory]) -> Any:
    """The executable; from now on :func:`held_by` returns ``memory`` for it."""
    setattr(executable, _ATTRIBUTE, dict(memory))
    return executable


@tvm.transform.module_pass(opt_level=0, name="RecordMemory")
@dataclass(frozen=True)
class RecordMemory:
    """Note the memory of each function of a module behind KillAfterLastUse, a module of TVM that stays as it is."""

    target: Target
    external: Sequence[Any]
    """The modules of libraries that the program imports."""
    found: dict[str, PlanMemory]

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        self.found.update(planned_memory(mod, self.target, self.external))
        return mod


def planned_memory(mod: IRModule, target: Target, external: Sequence[Any] = ()) -> dict[str, PlanMemory]:
    """The memory of each function of a module behind KillAfterLastUse."""
    modules = list(external) or list((mod.attrs or {}).get(EXTERNAL_MODS, []))
    library, devices = library_memory(modules), _devices(mod, target)
    functions = {g: f for g, f in mod.functions_items() if isinstance(f, relax.Function)}
    weights = _constants(functions.values()) + library.constants
    known = _Known(mod, library, temporaries_of(mod, target))
    runs = {gvar.name_hint: known.run_of(gvar) for gvar in functions}
    return {name: run.memory(devices, weights) for name, run in runs.items() if run is not None}


def _devices(mod: IRModule, target: Target) -> list[str]:
    """The name of each virtual device, by number."""
    infos = _virtual_devices(mod)
    return [label_of(infos, index) for index in range(len(infos))] or [f"{target.kind.name}:0"]


def _virtual_devices(mod: IRModule) -> list[Any]:
    return list((mod.global_infos or {}).get("vdevice", []))


def _named(device: Any) -> tuple[str, int, str]:
    return str(device.target), int(device.vdevice_id), str(device.memory_scope)


def weights_nbytes(mod: IRModule) -> int:
    """The bytes of a module's constants, each once."""
    return _constants(func for func in mod.functions.values() if isinstance(func, relax.Function))


def _constants(functions: Iterable[relax.Function]) -> int:
    """The bytes of TVM's constants, each once."""
    found: dict[int, int] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, ir.GenericConst) and isinstance(expr.value, tvm.runtime.Tensor):
            found[int(expr.value.data_ptr())] = nbytes_of(expr)

    for func in functions:
        relax.analysis.post_order_visit(func.body, visit)
    return sum(found.values())


class _Known:
    """A module, with what is known of its kernels, and the runs of its functions."""

    def __init__(self, mod: IRModule, library: LibraryMemory, temporaries: Mapping[str, int]):
        self.mod = mod
        self.temporaries = {**temporaries, **library.temporaries}
        self.runtimes = library.runtimes
        self._runs: dict[ir.GlobalVar, _Run] = {}
        self._running: set[ir.GlobalVar] = set()

    def place_of(self, ty: relax.TensorType) -> Place:
        """The place of a tensor that is not in a storage."""
        own = None if ty.vdevice is None else _named(ty.vdevice)
        for number, info in enumerate(_virtual_devices(self.mod)):
            if _named(info) == own:
                return number, str(info.memory_scope)
        return 0, "global"

    def run_of(self, gvar: ir.GlobalVar) -> _Run | None:
        """The run of a function of Relax; None while it runs itself: then it calls itself."""
        if gvar in self._running:
            return None
        if gvar not in self._runs:
            self._running.add(gvar)
            run = _Run(self)
            run.returned(self.mod[gvar].body)
            self._running.remove(gvar)
            self._runs[gvar] = run
        return self._runs[gvar]


Held = frozenset[int]
"""The storages that a value refers to, by number."""


@dataclass(frozen=True, slots=True)
class _Storage:
    place: Place
    nbytes: int
    is_pooled: bool
    """Whether it is from TVM's allocator; otherwise a packed function has made it."""


class _Run:
    """One run of a function, binding by binding."""

    def __init__(self, known: _Known):
        self._known = known
        self._held: dict[relax.Var, Held] = {}
        self._storages: list[_Storage] = []
        self._references: Counter[int] = Counter()
        self._live: Counter[Place] = Counter()
        self._most: Counter[Place] = Counter()
        self._free: Counter[tuple[Place, int]] = Counter()
        self._taken: Counter[Place] = Counter()
        self._given_back: set[int] = set()
        self._unknown = 0
        self._kernels: list[tuple[str, Counter[Place], Place, int]] = []

    def memory(self, devices: Sequence[str], weights: int) -> PlanMemory:
        """The figures of the run; ``weights``: the bytes of constants, which are on the first device."""
        places = sorted({(0, "global"), *self._taken, *(p for _, live, _, _ in self._kernels for p in live)})
        spaces = [
            MemorySpace(
                devices[place[0]] if place[0] < len(devices) else f"device:{place[0]}",
                place[1],
                tuple(live[place] for _, live, _, _ in self._kernels),
                tuple(scratch if at == place else 0 for _, _, at, scratch in self._kernels),
                weights if place == (0, "global") else 0,
                self._taken[place],
            )
            for place in places
        ]
        names = tuple(name for name, _, _, _ in self._kernels)
        return PlanMemory(names, tuple(spaces), self._unknown, self._known.runtimes)

    def returned(self, body: relax.Expr) -> Held:
        """Run a body; the storages of its result."""
        if not isinstance(body, relax.SeqExpr):
            return self._of(body)
        for binding in (binding for block in body.blocks for binding in block.bindings):
            held = self._value(binding.value)
            self._references.update(held)
            self._held[binding.var] = held
        return self._of(body.body)

    def _of(self, expr: relax.Expr) -> Held:
        """The storages that a variable, a tuple or a field of one refers to; of a field those of the whole tuple."""
        if isinstance(expr, relax.Tuple):
            return frozenset[int]().union(*map(self._of, expr.fields))
        if isinstance(expr, relax.TupleGetItem):
            return self._of(expr.tuple_value)
        return self._held.get(expr, frozenset()) if isinstance(expr, relax.Var) else frozenset()

    def _value(self, value: relax.Expr) -> Held:
        if isinstance(value, relax.If):
            return self._branches(value)
        if not isinstance(value, relax.Call):
            return self._of(value)
        name = _callee(value)
        if name in _KILLS:
            self._kill(value.args[0])
            return frozenset()
        if name == _STORAGE:
            return self._allocated(value)
        if name in _SAME_MEMORY:
            return self._of(value.args[0])
        return self._called(name, value)

    def _branches(self, value: relax.If) -> Held:
        """Either branch runs; the result is as large as that of the larger one."""
        first, results = len(self._storages), list[Held]()
        live, references, variables = Counter(self._live), Counter(self._references), dict(self._held)
        most, behind = self._most, Counter[Place]()
        for branch in (value.true_branch, value.false_branch):
            self._live, self._references, self._held = Counter(live), Counter(references), dict(variables)
            self._most = Counter(most)
            begin = len(self._storages)
            results.append(self.returned(branch))
            for number in range(begin, len(self._storages)):
                self._give_back(number)
            behind |= self._most
        self._most = behind
        # Both branches kill the same outer variables; values made in a branch end with it, except its result.
        gone = (self._storages[n] for n in range(first) if references[n] and not self._references[n])
        self._live = live
        for storage in gone:
            self._live[storage.place] -= storage.nbytes
        sizes = [Counter[Place](), Counter[Place]()]
        for held, size in zip(results, sizes, strict=True):
            for number in held:
                if number >= first:
                    size[self._storages[number].place] += self._storages[number].nbytes
        outer = frozenset(number for held in results for number in held if number < first)
        made = (
            self._take(_Storage(at, nbytes, is_pooled=False)) for at, nbytes in (sizes[0] | sizes[1]).items()
        )
        return outer.union(*made)

    def _allocated(self, call: relax.Call) -> Held:
        arguments: list[Any] = list(call.args)
        shape, index, scope = arguments[:3]
        size = ints(shape.values) if isinstance(shape, relax.ShapeExpr) else None
        if size is None:
            self._unknown += 1
            return frozenset()
        place = (int(getattr(index, "value", index)), str(scope.value) or "global")
        return self._take(_Storage(place, in_pages(size[0]), is_pooled=True))

    def _take(self, storage: _Storage) -> Held:
        place, nbytes = storage.place, storage.nbytes
        self._storages.append(storage)
        self._live[place] += nbytes
        self._most[place] = max(self._most[place], self._live[place])
        if storage.is_pooled:
            if self._free[place, nbytes]:
                self._free[place, nbytes] -= 1
            else:
                self._taken[place] += nbytes
        return frozenset({len(self._storages) - 1})

    def _kill(self, expr: relax.Expr) -> None:
        """Forget a variable, and free what no other one refers to."""
        held = self._held.pop(expr, frozenset()) if isinstance(expr, relax.Var) else frozenset()
        for number in held:
            self._references[number] -= 1
            if not self._references[number]:
                self._live[self._storages[number].place] -= self._storages[number].nbytes
                self._give_back(number)

    def _give_back(self, number: int) -> None:
        """A storage is free for values of the same size, once."""
        storage = self._storages[number]
        if storage.is_pooled and number not in self._given_back:
            self._given_back.add(number)
            self._free[storage.place, storage.nbytes] += 1

    def _called(self, name: str, call: relax.Call) -> Held:
        """A call of a kernel, of another function, or of a packed function that makes its result."""
        callee = call.op if isinstance(call.op, ir.GlobalVar) else None
        if callee is not None and isinstance(self._known.mod.functions.get(callee), relax.Function):
            run = self._known.run_of(callee)
            if run is None:  # the depth of recursion is known only when it runs
                self._unknown += 1
            else:
                self._include(run, name)
            return self._made(call, counts_unknown=False)
        made = self._made(call)
        if name == _COPY or (name and not name.startswith(("vm.builtin.", "relax."))):
            self._kernel(name.removeprefix("relax."), self._place_of(call))
        return made

    def _made(self, call: relax.Call, counts_unknown: bool = True) -> Held:
        """The tensors that a call returns, in memory of their own."""
        made = frozenset[int]()
        for field in _tensors(call.ty):
            if shape_of(field) is not None:
                place = self._known.place_of(field)
                made |= self._take(_Storage(place, in_pages(_nbytes(field)), is_pooled=False))
            elif counts_unknown:
                self._unknown += 1
        return made

    def _include(self, run: _Run, name: str) -> None:
        """Another function runs: its values are on top of those of this one."""
        self._unknown += run._unknown
        for kernel, live, place, scratch in run._kernels:
            total = Counter({at: self._live[at] + live[at] for at in {*self._live, *live}})
            self._kernels.append((f"{name}/{kernel}", total, place, scratch))
        for place, nbytes in run._taken.items():
            self._taken[place] += nbytes

    def _kernel(self, name: str, place: Place) -> None:
        self._kernels.append((name, self._most | self._live, place, self._known.temporaries.get(name, 0)))
        self._most = Counter()

    def _place_of(self, call: relax.Call) -> Place:
        """The position of the last operand with a storage: kernels write to their last operands."""
        for operand in reversed(list(call.args)):
            for number in sorted(self._of(operand)):
                return self._storages[number].place
        return (0, "global")


def _callee(call: relax.Call) -> str:
    """The name of what is called: an operator, a packed function, or a function of the module."""
    if isinstance(call.op, relax.ExternFunc):
        return str(call.op.global_symbol)
    return call.op.name_hint if isinstance(call.op, ir.GlobalVar) else op_name(call)


def _tensors(ty: Any) -> Iterator[relax.TensorType]:
    """The tensors that a call returns."""
    if isinstance(ty, relax.TupleType):
        for field in ty.fields:
            yield from _tensors(field)
    elif isinstance(ty, relax.TensorType):
        yield ty


def _nbytes(ty: relax.TensorType) -> int:
    return nbytes_of(relax.Var("value", ty))
