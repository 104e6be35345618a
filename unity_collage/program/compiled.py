"""Program: a compiled model that can be called, timed and saved."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from .. import runtime
from ..calling.inputs import Sizes, Take, taking, unchecked
from ..calling.memory import CPU, CUDA, Memory, memory_of
from ..calling.names import InputNames
from ..calling.processor import why_not_run
from ..calling.results import Buffers, let_numpy_read_tensors, with_own_memory
from ..calling.signature import Signature
from ..errors import CollageError, first_line, is_of_user
from ..ffi import tvm_ffi
from ..lowering import library_file, object_file
from ..lowering.seal import facts_in
from ..runtime import streams
from ..runtime.vendors import VENDORS
from ..runtime.virtual_machine import Machines, with_functions_of_tvm
from ..showing import Shown
from .facts import Facts, backends_in, custom_op_libraries_in, custom_ops_in, facts_about, torch_calls_in

if TYPE_CHECKING:
    from tvm.ir import IRModule
    from tvm.target import Target

    from ..plan.explanation import Explanation
    from ..plan.memory import PlanMemory
    from ..plan.plan import Plan
    from ..profile.result import Profile

Value = np.ndarray | tvm_ffi.Tensor | Sequence["Value"] | Any
"""An input: an array or tensor of any library, or a tuple of them if the model takes a tuple."""

_OUT = "out"
_PREPARED = "prepared_main"


class Program(Shown):
    """A model that runs on the CPU or on the first CUDA device.

    Call it with arrays or tensors of any library, by position, by input name, or as one dict by name. It returns what
    ``main`` of the model returns: one TVM tensor, or a list of them. ``numpy.asarray`` and ``torch.from_dlpack`` read a
    TVM tensor without a copy.

    With ``out=``, an array or a tuple of one for each result, the results are written to these and they are returned.
    If the model has an input named ``out``, this keyword is the input, and there are no buffers.

    A value of another type, shape or name than the model's is a CollageError. Contiguous aligned memory is read where
    it is; other memory is copied.

    On a CUDA device inputs are read, and results are, on the device: ``torch.from_dlpack`` reads them without a copy,
    and ``numpy.asarray`` waits and copies. A call launches its work and does not wait. The work is on PyTorch's current
    stream if a tensor of PyTorch on the device is given, else on TVM's.
    """

    def __init__(
        self,
        executable: Any,
        input_names: Sequence[str] | None = None,
        mod: IRModule | None = None,
        plan: Mapping[str, Plan] | None = None,
        explanation: Mapping[str, Explanation] | None = None,
        relink: Callable[[], Any] | None = None,
        signature: Signature | None = None,
        target: Target | None = None,
        saved: BinaryIO | None = None,
        threads: int | None = None,
        machine: Mapping[str, str] | None = None,
        device: str | None = None,
        devices: Sequence[str] = (),
        targets: Sequence[Target] = (),
    ) -> None:
        """``relink`` builds a new executable of the same program, for :meth:`save`. ``target``: what it is built for.

        ``saved``: the file that a loaded program was read from. Without a ``signature`` the VM alone checks the
        inputs. ``threads``: :attr:`threads`, if it is neither the target's number nor, for a new program, this
        process's. ``machine``: what a saved program records about the machine that compiled it. ``device``:
        :attr:`device`, if it is not that of the target. ``devices``: :attr:`devices`, if it has several; ``targets``:
        those of kernels besides ``target``.
        """
        self._executable = executable
        self._relink = relink
        self._names = None if input_names is None else tuple(input_names)
        self._target = target
        self._targets = (*([] if target is None else [target]), *targets)
        self._starting = threading.Lock()
        self._saved = saved
        self._machine = machine or {}
        if saved is not None:
            weakref.finalize(self, saved.close)
        self.signature = signature
        """The names, types and shapes of the inputs and results; None if they are not known."""
        self.threads = threads
        """How many threads it was measured and compiled for; None on a GPU, or if a loaded program does not say so."""
        self.device = device or (CUDA if target is not None and target.kind.name == CUDA else CPU)
        """Where it runs: ``"cpu"`` or ``"cuda"``, the first CUDA device."""
        self.devices = tuple(devices) or (f"{self.device}:0",)
        """The devices that it numbers, such as ``("cpu:0", "cpu:1")``; values are on the first one unless the signature
        names another."""
        if threads is None and saved is None and self.device == CPU:
            self.threads = _cores(target) or runtime.num_threads()
        self._mod = mod
        self._again: Callable[[], Program] | None = None
        self.plan = plan
        self.kept_since: float | None = None
        """When an earlier compile made it, in seconds since the epoch; None if this process compiled or loaded it."""
        self._binding: Callable[..., Program] | None = None
        self._profiling: Callable[..., Profile] | None = None
        self.explanation = explanation
        """Why each candidate was chosen or not, by function; None if it was not requested."""
        let_numpy_read_tensors()

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the model's inputs."""
        return self._inputs.names

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the model's results: their numbers if they have none. Empty where the results are not known."""
        return () if self.signature is None else tuple(spec.name for spec in self.signature.results)

    @property
    def saved_file(self) -> BinaryIO | None:
        """The open file of the program, if it was read from one, or is kept in one."""
        return self._saved

    @property
    def memory(self) -> PlanMemory | None:
        """The bytes that ``main`` holds while each kernel runs; None for a loaded program, or if not known."""
        main = (self.plan or {}).get("main")
        return None if main is None else main.memory

    @property
    def plan(self) -> Mapping[str, Plan] | None:
        """The plan of each function: its kernels, their backends and costs; None for a loaded program."""
        return self._plan

    @plan.setter
    def plan(self, plans: Mapping[str, Plan] | None) -> None:
        if plans is not None:
            from ..plan.plan import Plans  # a process that runs a saved program has no plans

            plans = Plans(plans)
        self._plan = plans

    def __repr__(self) -> str:
        known = ", ".join(self.input_names) if self.signature is None else str(self.signature)
        return f"<Program {known}>"

    @property
    def mod(self) -> IRModule | None:
        """The final IRModule; None for a loaded program.

        If an earlier compile made the program, reading this attribute compiles the model again. Raises CollageError
        if the plans differ then, because the model or its costs have changed.
        """
        if self._mod is None and self._again is not None:
            again = self._again()
            if _kernels(again.plan) != _kernels(self.plan):
                raise CollageError("the model, or what is known of its costs, has changed: compile it again")
            self._mod = again.mod
        return self._mod

    def let_compile_again(self, again: Callable[[], Program]) -> None:
        """Let :attr:`mod` be that of the program that ``again()`` compiles: this one was kept by an earlier process."""
        self._again = again

    def let_copy(self, saved: BinaryIO) -> None:
        """Let :meth:`save` and pickle copy the open file ``saved``, to which this program was saved already."""
        self._saved = saved
        weakref.finalize(self, saved.close)

    def add_to_plan(self, function: str, **fields: Any) -> None:
        """Set ``fields`` in the plan of a function; remarks are appended to the earlier ones."""
        from ..plan.plan import WITHOUT_CANDIDATES  # a process that runs a saved program has no plans

        found = dict(self.plan or {})
        plan = found.get(function, WITHOUT_CANDIDATES)
        remarks = (*plan.remarks, *fields.pop("remarks", ()))
        found[function] = replace(plan, remarks=remarks, **fields)
        self.plan = found

    def let_bind(self, binding: Callable[..., Program]) -> None:
        """Let :meth:`bind` call ``binding(params=...)``, which compiles the model again."""
        self._binding = binding

    def bind(self, params: Mapping[str, Any] | Sequence[Any]) -> Program:
        """A program with copies of ``params`` as constants, which kernels pack: as ``compile(model, params=params)``.

        The model is compiled again with the options of this program. Raises CollageError unless the model has weights
        as parameters behind ``num_input``, and was compiled in this process.
        """
        if self._binding is None:
            raise CollageError(
                "it was loaded, or its model has no weights behind num_input: compile(model, params=...) binds by name"
            )
        return self._binding(params=params)

    def let_profile(self, profiling: Callable[..., Profile]) -> None:
        """Let :meth:`profile` call ``profiling(program, args, named, seconds)``, which needs TVM's compiler."""
        self._profiling = profiling

    def profile(self, /, *args: Value, seconds: float = 1.0, **named: Value) -> Profile:
        """How long each kernel takes in the running program on these inputs, timed for about ``seconds``.

        The program is built once more with timing points between its kernels. Raises CollageError with the reason where
        that is not possible: for a loaded program and on a GPU (docs/profile.md).
        """
        if self._profiling is None:
            raise CollageError(
                "it was loaded, and compiled code has no timing points: unity-collage profile FILE.so --model MODEL "
                "times the kernels of its plan (docs/profile.md)"
            )
        return self._profiling(self, args, named, seconds)

    def __call__(self, /, *args: Value, **named: Value) -> Any:
        if _OUT in named and _OUT not in self.input_names:
            return self._into(named.pop(_OUT), args, named)
        if self.device == CPU:
            return self._run(self._arguments(args, named))
        with self._memory.stream_of(args, named):
            return self._run(self._arguments(args, named))

    def benchmark(self, /, *args: Value, seconds: float = 1.0, **named: Value) -> dict[str, float]:
        """The seconds of a run, timed natively for about ``seconds``: median, 5th and 95th percentile, and runs."""
        import statistics  # importing it takes as long as loading a small program

        run = self.prepared(*args, **named)
        timed = runtime.measure(run, [], warmup_seconds=seconds / 5, min_runs=20, min_seconds=seconds)
        low, *_, high = statistics.quantiles(timed, n=20)
        return {"median": statistics.median(timed), "p5": low, "p95": high, "runs": len(timed)}

    def prepared(self, /, *args: Value, **named: Value) -> Any:
        """A function of no arguments that runs the model on these inputs, for native timing loops.

        It reads inputs that were not copied where they are. It is called once here. On a device it waits for its
        results.
        """
        if self.device == CPU and not self._has_several:
            machine = self._machines.started()
            machine["save_function"]("main", _PREPARED, True, *self._arguments(args, named))
            run = machine[_PREPARED]
        elif self.device == CPU:  # TVM's VM would copy the saved arguments to its first device
            run = tvm_ffi.convert(partial(self._main, *self._arguments(args, named)))
        else:
            with self._memory.stream_of(args, named):
                run = streams.waiting(self._main, self._arguments(args, named))
        with_functions_of_tvm(run)
        return run

    def save(self, path: str | Path, bundle: bool = False) -> None:
        """Write a file for :func:`load`: a shared library, or object code where there is no C++ compiler to link it.

        With ``bundle`` it is a new folder, with all libraries that the program needs besides those of the system, and
        headers for C and C++: it runs where there is neither Python nor this package (docs/deploy.md).

        A program that has run is built again, from the same final module, and that build is written. A loaded program
        is a copy of its file.

        Raises CollageError with the reason in one line.
        """
        if bundle:
            self._save_bundle(Path(path))
            return
        if self._saved is not None:
            with library_file.reopened(self._saved) as file:
                library_file.copy(file, path)
            return
        executable = self._executable
        if "_machines" in self.__dict__ and self._relink is not None:
            # A VM marks the executable that it runs. TVM prints a line for each constant of such an executable when
            # it is written or read.
            executable = self._relink()
        plans = self.plan or {}
        about = (self._names, self.signature, self.threads, self._target, self._machine, plans, self.device)
        try:
            facts = facts_about(executable, *about, devices=self.devices, targets=self._targets)
        except RuntimeError as error:  # a part of this package is missing, and its version is not known
            raise CollageError(f"{path} cannot be written: {first_line(error)}") from error
        library_file.export(executable, path, facts)

    def _save_bundle(self, folder: Path) -> None:
        from .bundle import write_bundle

        if self._has_several:
            raise CollageError(
                f"a bundle is for programs on one device, and this one runs on {', '.join(dict.fromkeys(self.devices))}"
            )
        if self.device != CPU:
            raise CollageError(
                "a bundle is for programs on CPUs: callers in C are not supported on a GPU yet"
            )
        from ..scratch import Scratch  # takes long to import, and most programs need none

        with Scratch("program") as scratch:
            program = Path(scratch) / "program.so"
            self.save(program)
            with library_file.opened(program) as file:
                facts: Facts = facts_in(file)
            if torch := torch_calls_in(facts):
                raise CollageError(
                    f"a bundle runs without Python, and this program calls PyTorch: {', '.join(torch)}"
                )
            if through := [
                name for name in backends_in(facts) if (found := VENDORS[name]) and found.by_python
            ]:
                raise CollageError(
                    f"a bundle runs without Python, and this program calls {', '.join(through)} through it"
                )
            if custom := custom_ops_in(facts):
                raise CollageError(
                    f"a bundle runs without Python, and this program calls Python functions: {', '.join(custom)}"
                )
            if custom_libraries := custom_op_libraries_in(facts):
                paths = ", ".join(library["path"] for library in custom_libraries)
                raise CollageError(
                    f"a bundle may be moved, and this program registers operators from {paths}: save it as a file"
                )
            if facts["processor"] not in ("", here := os.uname().machine):
                raise CollageError(
                    f"a bundle has libraries of this machine, which is {here}, and the program is for "
                    f"{facts['processor']}: save it as a file"
                )
            if not object_file.is_linked(program):
                raise CollageError(
                    "a bundle has a shared library, and there is no C++ compiler to link one: install g++ or clang++"
                )
            write_bundle(program, folder, backends_in(facts))

    def __reduce__(self) -> Any:
        """A program is pickled as its library, without its plan: what is unpickled is a loaded program."""
        from .loading import from_library

        return from_library, (self._library(),)

    @cached_property
    def _machines(self) -> Machines:
        for target in self._targets:
            if reason := why_not_run(target):
                raise CollageError(f"the program cannot run here: {reason}")
        with self._starting:  # threads that call a new program at the same time start one VM
            if "_machines" not in self.__dict__:
                for place in self.devices:
                    memory_of(place)  # says why there is none
                start = partial(Machines, self._executable, self.devices)
                self.__dict__["_machines"] = with_functions_of_tvm(start)
            return self.__dict__["_machines"]

    @cached_property
    def _memory(self) -> Memory:
        return memory_of(self.devices[0])

    @property
    def _has_several(self) -> bool:
        return len(set(self.devices)) > 1

    def _memory_at(self, place: str) -> Memory:
        """The memory of a device by name; that of the first one by the empty name."""
        return memory_of(place) if place else self._memory

    @cached_property
    def _main(self) -> Any:
        return self._machines.main()

    @cached_property
    def _inputs(self) -> InputNames:
        return InputNames(self._parameters() if self._names is None else self._names)

    @cached_property
    def _takes(self) -> list[Take]:
        if self.signature is None:
            return [lambda value, _: unchecked(value, self._memory)] * len(self.input_names)
        return [taking(spec, self._memory, self._memory_at) for spec in self.signature.inputs]

    def _arguments(self, args: Sequence[Value], named: Mapping[str, Value]) -> list[Any]:
        """The arguments of ``main``, in order."""
        sizes: Sizes = {}
        values = self._inputs.in_order(args, named)
        return [take(value, sizes) for take, value in zip(self._takes, values, strict=True)]

    def _run(self, arguments: Sequence[Any]) -> Any:
        try:
            found = with_functions_of_tvm(lambda: self._main(*arguments))
        except CollageError:
            raise
        except Exception as error:  # kernels of libraries raise errors of many kinds, which become the reason
            if is_of_user(error):
                raise
            told = first_line(error)
            why = "the sizes of its inputs do not fit each other: " if "match_cast" in told else ""
            raise CollageError(f"the program failed: {why}{told}") from error
        if self.signature is not None and self.signature.shared:
            return with_own_memory(found, self.signature.shared, self._memory)
        return found

    def _into(self, out: Any, args: Sequence[Value], named: Mapping[str, Value]) -> Any:
        buffers = Buffers(out, self.signature, self._memory)
        with self._memory.stream_of(args, named, out):
            return buffers.filled(self._run(self._arguments(args, named)))

    def _parameters(self) -> list[str]:
        machine = self._machines.first
        arity = int(machine["get_function_arity"]("main")) - len(self._machines.placed)
        return [str(machine["get_function_param_name"]("main", i)) for i in range(arity)]

    def _library(self) -> bytes:
        if self._saved is not None:
            with library_file.reopened(self._saved) as file:
                return file.read()
        from ..scratch import Scratch  # takes long to import, and most programs need none

        with Scratch("program") as folder:
            path = Path(folder) / "program.so"
            self.save(path)
            return path.read_bytes()


def _kernels(plans: Mapping[str, Plan] | None) -> dict[str, list[Any]]:
    """The plan of each function, by its name."""
    return {
        name: [(kernel.backend, kernel.label, kernel.bindings, kernel.threads) for kernel in plan.kernels]
        for name, plan in (plans or {}).items()
    }


def _cores(target: Target | None) -> int | None:
    """The number of threads that a target is for, if it says so."""
    cores = None if target is None else target.attrs.get("num-cores")
    return None if cores is None else int(cores)
