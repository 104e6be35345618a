from .onnx_frontend import from_onnx as from_onnx
