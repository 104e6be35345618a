import tvm_ffi

class Device(tvm_ffi.Device):
    def sync(self, stream: int | None = None) -> None: ...
