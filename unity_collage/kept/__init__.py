"""Finished programs that are kept beside the database of costs, so that the same compile need not run again.

The name of a program is a digest of all that it follows from: the model (:mod:`.models`), the options (:mod:`.asked`),
and the code, packages and machine (:mod:`.surroundings`). It is used as long as the database still gives the answers
that it was made of. Nothing here imports TVM before a module has to be looked at.
"""
