"""Layouts as permutations of axes, and the translation of a Relax function into channels-last form."""
