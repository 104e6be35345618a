"""Summaries of results: the time of the peers over ours, model by model and together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from unity_collage.profile.peers.runtimes import OURS

STOCK = "stock-tvm"

PEERS = {
    "f32": ("onnxruntime", "openvino", STOCK, "torch-compile", "mnn", "ncnn"),
    "bf16": ("openvino-default",),
}
"""By precision, the peers that ours has to beat: runtimes of others."""

_TITLES = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "openvino-default": "OpenVINO, bfloat16",
    "torch-compile": "torch.compile",
    "mnn": "MNN",
}


def ratios_of(row: Mapping[str, Any], precision: str) -> dict[str, list[float]]:
    """For each peer, its time over ours in each round; ``best``: of the fastest peer of the league by median."""
    seconds = row["seconds"]
    ours = seconds[OURS]
    ratios = {
        peer: [theirs / own for theirs, own in zip(found, ours, strict=False)]
        for peer, found in seconds.items()
        if peer != OURS
    }
    fair = {peer: found for peer, found in ratios.items() if peer in PEERS[precision]}
    if fair:
        ratios["best"] = min(fair.values(), key=statistics.median)
    return ratios


def verdict(row: Mapping[str, Any], precision: str) -> tuple[str, str, str]:
    """In words: the best peer's time over ours with the middle half, the largest error, how fast cores exchanged."""
    ahead = ""
    if ratios := ratios_of(row, precision).get("best"):
        median = statistics.median(ratios)
        low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [median] * 3
        ahead = f"{median:.2f}x ({low:.2f}-{high:.2f})"
    found = [bandwidth / 1e9 for bandwidth in row.get("exchange_bandwidth", []) if bandwidth]
    exchanged = f"{min(found):.0f}-{max(found):.0f} GB/s" if found else ""
    return ahead, f"{row.get('error', 0):.0e}", exchanged


def peers_in(known: Mapping[str, Any]) -> list[str]:
    """All peers that ours was timed against, in order."""
    return list(
        dict.fromkeys(peer for row in known["models"].values() for peer in row["seconds"] if peer != OURS)
    )


def medians_of(known: Mapping[str, Any]) -> dict[str, float]:
    """For each model that was timed against a peer, the median of the best peer's time over ours."""
    found = {
        name: ratios_of(row, known["precision"]).get("best") for name, row in sorted(known["models"].items())
    }
    return {name: statistics.median(ratios) for name, ratios in found.items() if ratios}


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def title(peer: str) -> str:
    """The display name of a peer."""
    return _TITLES.get(peer, peer)
