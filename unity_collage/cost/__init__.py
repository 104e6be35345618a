"""Cost models: what a kernel costs, and lower bounds of that."""
