from collections.abc import Callable
from typing import Any

from tvm_ffi import Object
from typing_extensions import ParamSpec

_P = ParamSpec("_P")

class PassInstrument(Object): ...

def pass_instrument(pi_cls: Callable[_P, Any]) -> Callable[_P, PassInstrument]: ...
