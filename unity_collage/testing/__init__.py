"""Public helpers for tests: models, named little graphs, typed prices, the contract of a pass."""
