"""What modules of a program have in common is in its file once, and each module finds all of its bytes."""

from __future__ import annotations

import json
from struct import pack
from typing import Any

import numpy as np
import pytest

from unity_collage.lowering.common_parts import CommonBlob, Content, noted, programs_in, without_blob
from unity_collage.schedule.panels import Panels


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def as_bytes(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(array.tobytes(), np.int8)


def saved_programs(*constants: np.ndarray) -> np.ndarray:
    """A module with a program for each constant."""
    programs, blob = [], b""
    for array in constants:
        programs.append(
            {"constants": [{"buffer": 0, "offset": len(blob), "nbytes": array.nbytes}], "steps": [0.1]}
        )
        blob += array.tobytes()
    text = json.dumps({"programs": programs}).encode()
    return np.frombuffer(pack("<Q", len(text)) + text + blob, np.int8)


def read(note: dict[str, Any], section: bytes) -> bytes:
    """What the runtime copies."""

    def at(axis: int, offset: int) -> bytes:
        if axis == len(note["counts"]):
            return section[offset : offset + note["nbytes"]]
        stride = note["strides"][axis]
        return b"".join(at(axis + 1, offset + i * stride) for i in range(note["counts"][axis]))

    return at(0, note["offset"])


def of(common: CommonBlob) -> bytes:
    return b"".join(part.tobytes() for part in common.parts)


def test_modules_of_libraries_find_their_constants_in_one_blob() -> None:
    a, b, c = (weights(16, 24, seed=seed) for seed in range(3))
    common = CommonBlob()
    for constants in ((a, b), (c, b, a)):
        saved = [saved_programs(*constants)]
        text = programs_in("collage.onednn", saved)
        bare = without_blob(text, saved, common)
        (length,) = np.frombuffer(bare[:8].tobytes(), np.uint64)
        again = json.loads(bare[8:].tobytes())
        assert length + 8 == bare.nbytes and bare.nbytes % 64 == 0
        for program, right in zip(again["programs"], constants, strict=True):
            (place,) = program["constants"]
            assert place["offset"] % 64 == 0 and program["steps"] == [0.1]
            assert of(common)[place["offset"] : place["offset"] + place["nbytes"]] == right.tobytes()
    assert common.nbytes == len(of(common)) == 3 * a.nbytes


@pytest.mark.parametrize("kind", ["relax.VMExecutable", "collage.onnxruntime"])
def test_other_modules_have_no_programs(kind: str) -> None:
    assert programs_in(kind, [np.frombuffer(pack("<Q", 2) + b"{}", np.int8)]) is None


def test_a_blob_that_is_not_copied_is_the_constants_of_its_module() -> None:
    a, b = weights(16, 24), weights(16, 24, seed=1)
    whole = saved_programs(a, b)
    (length,) = np.frombuffer(whole[:8].tobytes(), np.uint64)
    at = 8 + int(length)
    saved = [whole[:at], Content(whole[at:], (1, 8, 1), (whole.nbytes - at,), -1), whole[:0]]
    common = CommonBlob()
    without_blob(programs_in("collage.onednn", saved), saved, common)
    assert of(common) == a.tobytes() + b.tobytes()


@pytest.mark.parametrize("width", [8, 16, 24])
def test_constants_and_panels_of_them_are_notes(width: int) -> None:
    w, filters, other = weights(32, 48), weights(3, 3, 8, 96, seed=1), weights(32, 48, seed=2)
    common = CommonBlob()
    for array in (w, filters):
        common.add(as_bytes(array))
    known = common.nbytes
    tensors = [
        w,
        Panels((), (0,), 1, 48, width).pack(w),
        Panels((), (0, 1, 2), 3, 96, width).pack(filters),
        other,
        other,
    ]
    notes = [
        noted(Content(as_bytes(tensor), (2, 32, 1), tensor.shape, place), common)
        for place, tensor in enumerate(tensors)
    ]
    assert common.nbytes == known + other.nbytes
    for place, (note, tensor) in enumerate(zip(notes, tensors, strict=True)):
        assert read(note, of(common)) == tensor.tobytes()
        assert (note["place"], note["shape"], note["dtype"]) == (place, list(tensor.shape), [2, 32, 1])
