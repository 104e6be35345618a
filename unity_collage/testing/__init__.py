"""Public helpers for tests: the conformance kit, the contract of a pass, named graphs, fake backends, fixed costs."""
