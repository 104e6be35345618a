"""ONNX Runtime and OpenVINO as backends: regions of a function as their sessions."""
