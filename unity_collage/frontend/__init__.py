"""Models in: ONNX files become Relax modules."""
