from . import onnx as onnx
