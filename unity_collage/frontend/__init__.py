"""Imports models: ONNX files and models of PyTorch become Relax modules."""
