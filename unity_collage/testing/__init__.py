"""Public helpers for tests: models, named little graphs, typed costs, the contract of a pass."""
