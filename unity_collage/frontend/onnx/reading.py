"""Reads ONNX files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from ...errors import ModelError, first_line, is_file, not_a_file
from .data_files import DataFiles, OwnFile, bare_message


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """A model with large weights that may still be in files."""

    model: onnx.ModelProto
    files: DataFiles | None = None
    """These files; None if it is not known where they are."""


def read_onnx(path: Path, *, whole: bool = True) -> OnnxFile:
    """The model in a file, without its external data; raises ModelError with the reason in one line.

    Unless it is to be ``whole``, large initializers stay in the file until they are needed.
    """
    if not is_file(path):
        raise ModelError(not_a_file(path))
    try:
        own = OwnFile.at(path)
        bare = None if whole else bare_message(path)
        model = onnx.ModelProto.FromString(bare) if bare else onnx.load(path, load_external_data=False)
    except UnicodeDecodeError as error:  # by its name it is JSON or text
        raise ModelError(f"{path} is not an ONNX model: it is not text, as its name says") from error
    except Exception as error:  # the errors of protobuf have no common base class
        raise ModelError(f"{path} is not an ONNX model: {first_line(error)}") from error
    if not model.HasField("graph"):
        raise ModelError(f"{path} is not an ONNX model: it has no graph")
    return OnnxFile(model, DataFiles(str(path.parent), own if bare else None))


def files_of_weights(model: onnx.ModelProto) -> list[str]:
    """The files with external data that a model names, relative to its folder."""
    tensors = [tensor for graph in _graphs(model) for tensor in _tensors(graph)]
    entries = [entry for tensor in tensors for entry in tensor.external_data]
    return sorted({entry.value for entry in entries if entry.key == "location" and entry.value})


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """The graph of a model and its functions, each before the graphs inside it."""
    left: list[Any] = [model.graph, *model.functions]
    while left:
        graph = left.pop()
        yield graph
        left += [inner for node in graph.node for attr in node.attribute for inner in (attr.g, *attr.graphs)]


def _tensors(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """The tensors of a graph itself."""
    yield from getattr(graph, "initializer", ())
    for sparse in getattr(graph, "sparse_initializer", ()):
        yield from (sparse.values, sparse.indices)
    for attr in (attr for node in graph.node for attr in node.attribute):
        yield from (attr.t, *attr.tensors)
