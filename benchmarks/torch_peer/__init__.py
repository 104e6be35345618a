"""torch.compile as a peer: an ONNX model as a module of torch as a user might write it."""
