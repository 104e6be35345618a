from tvm.tirx import PrimFunc

class TensorIntrin:
    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> TensorIntrin: ...
