"""What modules of a program have in common is in its file once, and each module finds all of its bytes."""

from __future__ import annotations

import json
from struct import pack
from typing import Any

import numpy as np
import pytest

from unity_collage.lowering.common_parts import CommonBlob, cut, programs_in, without_blob
from unity_collage.schedule.panels import Panels


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def as_bytes(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(array.tobytes(), np.int8)


def saved_tensor(array: np.ndarray) -> bytes:
    """A tensor as TVM writes it."""
    head = pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, array.ndim, 2, 32, 1)
    return head + pack(f"<{array.ndim + 1}q", *array.shape, array.nbytes) + array.tobytes()


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


def read(pieces: list[dict[str, Any]], section: bytes) -> bytes:
    """What the runtime copies."""

    def at(piece: dict[str, Any], axis: int, offset: int) -> bytes:
        if axis == len(piece["counts"]):
            return section[offset : offset + piece["nbytes"]]
        stride = piece["strides"][axis]
        return b"".join(at(piece, axis + 1, offset + i * stride) for i in range(piece["counts"][axis]))

    return b"".join(at(piece, 0, piece["offset"]) for piece in pieces)


def of(common: CommonBlob) -> bytes:
    return b"".join(part.tobytes() for part in common.parts)


def test_modules_of_libraries_find_their_constants_in_one_blob() -> None:
    a, b, c = (weights(16, 24, seed=seed) for seed in range(3))
    common = CommonBlob()
    for constants in ((a, b), (c, b, a)):
        saved = saved_programs(*constants)
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
    assert programs_in(kind, as_bytes(np.frombuffer(pack("<Q", 2) + b"{}", np.int8))) is None


@pytest.mark.parametrize("width", [8, 16, 24])
def test_constants_and_panels_of_them_are_notes(width: int) -> None:
    w, filters, other = weights(32, 48), weights(3, 3, 8, 96, seed=1), weights(32, 48, seed=2)
    common = CommonBlob()
    for array in (w, filters):
        common.add(as_bytes(array))
    tensors = [
        w,
        Panels((), (0,), 1, 48, width).pack(w),
        other,
        Panels((), (0, 1, 2), 3, 96, width).pack(filters),
    ]
    saved = np.frombuffer(b"code" + b"".join(map(saved_tensor, tensors)) + b"more", np.int8)
    own, pieces = cut(saved, common, common.nbytes)
    assert read(pieces, of(common) + b"".join(part.tobytes() for part in own)) == saved.tobytes()
    assert sum(part.nbytes for part in own) == saved.nbytes - 2 * w.nbytes - filters.nbytes


def test_what_only_looks_like_a_tensor_is_copied() -> None:
    w = weights(32, 48)
    common = CommonBlob()
    common.add(as_bytes(w))
    begin = saved_tensor(w)
    inner = np.frombuffer(begin + bytes(-len(begin) % 4), np.float32)
    texts = [begin[:20], begin[:40] + b"cut", begin[:-8], saved_tensor(inner), b"\0" * 9 + begin[:24]]
    for text in texts:
        saved = np.frombuffer(text, np.int8)
        own, pieces = cut(saved, common, common.nbytes)
        assert read(pieces, of(common) + b"".join(part.tobytes() for part in own)) == text
