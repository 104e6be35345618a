"""Patterns and predicates that other packages have registered with TVM, as backends."""
