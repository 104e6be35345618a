"""Questions about a model that need no program of it: what a compile would measure, and what a given plan costs."""
