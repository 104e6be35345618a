"""The data of a decision: the search problem of a function, its plan, why it is so, whether it holds."""
