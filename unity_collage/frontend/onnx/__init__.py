"""ONNX: files are read, and their graphs become Relax functions.

TVM's own importer is not used: it ignores domains, converts many operators wrongly in some opset, and has no hook for
others. :mod:`.table` lists which converter serves which operator.
"""
