"""torch.compile as a peer: an ONNX model as a module of torch that somebody might have written."""
