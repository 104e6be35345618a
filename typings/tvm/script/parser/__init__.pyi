from tvm.relax.script import parser as relax

__all__ = ["relax"]
