from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from tvm_ffi import Array, Map, Object
from typing_extensions import ParamSpec, Self

from .instrument import PassInstrument
from .module import IRModule

_P = ParamSpec("_P")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

class PassInfo(Object):
    opt_level: int
    name: str
    required: Array[str]
    traceable: bool

class PassContext(Object):
    opt_level: int
    required_pass: Array[str]
    disabled_pass: Array[str]
    instruments: Array[PassInstrument]
    config: Map[str, Any]
    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[PassInstrument] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, ptype: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @staticmethod
    def current() -> PassContext: ...

class Pass(Object):
    @property
    def info(self) -> PassInfo: ...
    def __call__(self, mod: IRModule) -> IRModule: ...

class ModulePass(Pass):
    """A pass that ``module_pass`` made of a class; it has the attributes of that class too."""

    def __getattr__(self, name: str) -> Any: ...

class Sequential(Pass):
    passes: Array[Pass]
    def __init__(
        self,
        passes: Sequence[Pass] | None = None,
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] | None = None,
        traceable: bool = False,
    ) -> None: ...

class PassClass(Generic[_T_co]):
    """Stands here alone, for what ``module_pass`` makes of a class: its constructor, which makes a pass."""

    def __call__(self: PassClass[Callable[_P, Any]], *args: _P.args, **kwargs: _P.kwargs) -> ModulePass: ...

def module_pass(
    *, opt_level: int, name: str | None = None, required: Sequence[str] | None = None, traceable: bool = False
) -> Callable[[_T], PassClass[_T]]: ...
