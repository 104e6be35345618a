"""The backend suite of the onnx package through ``compile``: cases, verdicts, the process that runs them."""
