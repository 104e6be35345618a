"""Imports models: ONNX files become Relax modules."""
