from tvm.ir import GlobalInfo
from tvm.target import Target

class VDevice(GlobalInfo):
    target: Target
    vdevice_id: int
    memory_scope: str
    def __init__(
        self, target: Target | str | None = None, vdevice_id: int = 0, memory_scope: str = "global"
    ) -> None: ...
