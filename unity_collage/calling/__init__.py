"""How a compiled program is called: names, checks of inputs, tensors of other libraries, buffers for results."""
