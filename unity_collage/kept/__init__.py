"""Finished programs that are kept next to the database of costs, so that the same compile need not run again.

The name of a program is a digest of all that it depends on: the model (:mod:`.models`), the options (:mod:`.asked`),
and the code, packages and machine (:mod:`.surroundings`). It is used as long as the database gives the same answers
as in its compile. This package imports TVM only to read a module.
"""
