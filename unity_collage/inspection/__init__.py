"""Questions about a model that need no compiled program: what a compile would measure, and what a given plan costs."""
