"""How fast one core reads what another wrote. On shared machines it changes from minute to minute, and so does the
speed of small networks, since cores share their kernels.

usage: exchange.py [--seconds S]      prints it once a second
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np

_BYTES = 512 * 1024
"""Fits into the second-level cache of a core."""
_REPEATS = 60


def bandwidth() -> float | None:
    """Bytes a second at which the second core that the process may use reads 512 KB which the first has just written;
    None where there is only one, or no choice. numpy's maximum reads them, no faster than 100 GB/s or so.
    """
    choose = getattr(os, "sched_setaffinity", None)
    cores = sorted(os.sched_getaffinity(0)) if choose else []
    if choose is None or len(cores) < 2:
        return None
    numbers = np.zeros(_BYTES // 4, np.float32)
    seconds: list[float] = []
    try:
        for _ in range(_REPEATS):
            choose(0, {cores[0]})
            numbers += 1
            choose(0, {cores[1]})
            begin = time.perf_counter()
            numbers.max()
            seconds.append(time.perf_counter() - begin)
    finally:
        choose(0, set(cores))
    return _BYTES / statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    end = time.monotonic() + parser.parse_args().seconds
    while time.monotonic() < end:
        found = bandwidth()
        print("one core" if found is None else f"{found / 1e9:.0f} GB/s", flush=True)
        time.sleep(1.0)


if __name__ == "__main__":
    main()
