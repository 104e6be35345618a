from typing import Any

from tvm_ffi import Object

class Node(Object): ...

class Span(Object):
    line: int
    column: int
    end_line: int
    end_column: int

def load_json(json_str: str) -> Any: ...
def save_json(node: object) -> str: ...
