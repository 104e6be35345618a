"""Shared code of benchmarks of model files: figures file by file, and saved programs timed in turns."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from result_file import ResultFile
from rich.console import Console
from rich.table import Table

import unity_collage as uc
from unity_collage.measure.inputs import random_inputs
from unity_collage.profile.peers.bench import interleaved
from unity_collage.profile.peers.runtime_process import RuntimeProcess
from unity_collage.profile.peers.runtimes import OURS

_ROUND_SECONDS = 0.4

_COMMAND = "import sys; from unity_collage.cli import command; sys.exit(command())"
"""The code of the script ``unity-collage``."""

Figures = dict[str, Any]


def parser(description: str | None) -> argparse.ArgumentParser:
    """Options that all have: the models, the file of results, the rounds."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("models", nargs="+", type=Path)
    made.add_argument("--json", type=Path)
    made.add_argument("--rounds", type=int, default=7)
    return made


def measure(
    options: argparse.Namespace,
    figures: Callable[[Path, argparse.Namespace], Figures],
    table: Callable[[Mapping[str, Figures]], Table],
) -> None:
    """Print and store the figures of each model as soon as they are known; those in the file are not measured again.

    Ends the process with 1 where a model has failed.
    """
    results = ResultFile(options.json, options)
    paths = {model.stem: model for model in options.models}
    is_complete = results.fill(paths, lambda name: figures(paths[name], options))
    Console().print(table(results.rows))
    sys.exit(not is_complete)


def command(*arguments: object) -> None:
    """Run the command line of this package in a process of its own; raises CalledProcessError where it fails."""
    words = [sys.executable, "-c", _COMMAND, *map(str, arguments)]
    subprocess.run(words, check=True, capture_output=True)


def compile_seconds(model: Path, database: Path, output: Path, *more: str) -> float:
    """How long the command that compiles ``model`` takes, in seconds."""
    begin = time.perf_counter()
    command("compile", model, "--database", database, "-o", output, *more)
    return time.perf_counter() - begin


def programs_in_turns(model: Path, files: Mapping[str, Path], rounds: int) -> dict[str, list[float]]:
    """The seconds of each saved program of ``model`` by round, each in a process of its own."""
    source = uc.import_model(model)
    inputs = dict(zip(source.inputs, random_inputs(source.mod["main"]), strict=True))
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(RuntimeProcess(OURS, path, inputs, uc.num_threads()))
            for name, path in files.items()
        }
        return interleaved(running, rounds, _ROUND_SECONDS)
