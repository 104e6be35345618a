"""Where the data of an ONNX model's tensors are: in its message, in files beside it, or still in the model's own file.

The message of a large file is read without its large initializers. They are marked like tensors with external data,
with an empty name of their file, and read when the model is imported. So no second copy of them stays in memory.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...sessions import aligned_bytes
from .wire import BYTES, Field, fields_of, message_head

_LEAST_BYTES = 1 << 16
"""Smaller tensors are read with the message."""
_LARGE_FILE = 1 << 24
"""Smaller files are read as a whole."""
_TYPES = frozenset((1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16))
"""The types of elements, as ONNX numbers them, that have one element in some whole bytes."""

_GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_OF_TENSOR = {name: field.number for name, field in onnx.TensorProto.DESCRIPTOR.fields_by_name.items()}


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file as it was when its message was read."""

    path: str
    """The absolute path."""
    state: tuple[int, ...]

    @staticmethod
    def at(path: Path) -> OwnFile:
        """The file at ``path`` as it is now."""
        return OwnFile(str(path.absolute()), _state(path.stat()))


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files with data that are not in the message."""

    folder: str
    """The folder of the model, which the names of files with external data start from."""
    own: OwnFile | None = None
    """The file of the model itself, if large initializers have not been read from it."""


@dataclass(frozen=True, slots=True)
class InFile:
    """Bytes of a file."""

    file: OwnFile
    offset: int
    nbytes: int

    def read_into(self, target: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Read them; raises OSError, also if the file has changed."""
        with Path(self.file.path).open("rb", buffering=0) as file:
            if _state(os.fstat(file.fileno())) != self.file.state:
                raise OSError(f"{self.file.path} has changed while it was read")
            file.seek(self.offset)
            view, at = target.data, 0
            while at < self.nbytes:
                count = file.readinto(view[at:])
                if not count:
                    raise OSError(f"{self.file.path} ends before them")
                at += count


class Loaded(np.ndarray[Any, Any]):
    """An array that was read for one constant, which may keep it: nothing writes to it."""


def left_in_file(tensor: onnx.TensorProto, files: DataFiles | None) -> InFile | None:
    """Where the data of a tensor are in the model's own file; None for others."""
    if files is None or files.own is None or tensor.data_location != onnx.TensorProto.EXTERNAL:
        return None
    fields = {entry.key: entry.value for entry in tensor.external_data}
    if fields.get("location", "-"):
        return None
    return InFile(files.own, int(fields["offset"]), int(fields["length"]))


def loaded(place: InFile, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """The array with the bytes at ``place``; raises OSError, or ValueError for another number of bytes."""
    if place.nbytes != dtype.itemsize * int(np.prod(shape)):
        raise ValueError(f"it has {place.nbytes} bytes, which is not what its shape needs")
    data = aligned_bytes(place.nbytes)
    place.read_into(data)
    return data.view(dtype).reshape(shape).view(Loaded)


def bare_message(path: Path) -> bytes | None:
    """The message in a large file without the data of large initializers; None if it is to be read as a whole."""
    if path.suffix != ".onnx" or path.stat().st_size < _LARGE_FILE:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _bare_model(data)
        except (IndexError, ValueError):  # it is no such message: the library says why
            return None


def _bare_model(data: mmap.mmap) -> bytes:
    pieces: list[bytes] = []
    graphs = 0
    for field in fields_of(data, 0, len(data)):
        if field.number == _GRAPH and field.wire == BYTES:
            graphs += 1
            inside = b"".join(
                _bare_initializer(data, each) if each.number == _INITIALIZER else data[each.start : each.end]
                for each in fields_of(data, field.begin, field.end)
            )
            pieces.append(message_head(_GRAPH, len(inside)) + inside)
        else:
            pieces.append(data[field.start : field.end])
    if graphs != 1:
        raise ValueError("a message may be in several parts")
    return b"".join(pieces)


def _bare_initializer(data: mmap.mmap, field: Field) -> bytes:
    """An initializer without its data if these are large and in one piece; otherwise as it is."""
    if field.end - field.begin < _LEAST_BYTES:
        return data[field.start : field.end]
    fields = list(fields_of(data, field.begin, field.end))
    numbers = [each.number for each in fields]
    raw = [each for each in fields if each.number == _OF_TENSOR["raw_data"]]
    types = [each.value for each in fields if each.number == _OF_TENSOR["data_type"]]
    elsewhere = {_OF_TENSOR["external_data"], _OF_TENSOR["data_location"]}.intersection(numbers)
    if len(raw) != 1 or len(types) != 1 or types[0] not in _TYPES or elsewhere:
        return data[field.start : field.end]
    (place,) = raw
    text = b"".join(data[each.start : each.end] for each in fields if each is not place)
    added = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", ""), ("offset", place.begin), ("length", place.end - place.begin)):
        added.external_data.add(key=key, value=str(value))
    text += added.SerializeToString()
    return message_head(_INITIALIZER, len(text)) + text
