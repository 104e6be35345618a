"""ONNX: files are read, and their graphs become Relax functions.

TVM's own importer is not used: it ignores domains, converts many operators wrongly in some opset, and has no hook for
further operators. :mod:`.table` lists the converter of each operator.
"""
