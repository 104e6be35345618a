"""Generate tokens with GPT-2 of random weights: one program reads the prompt and continues it, token by token.

usage: gpt2.py [--llama] [--layers 12] [--width 768] [--vocabulary 50257] [--prompt 64] [--tokens 64]

``--llama`` makes a decoder like Llama instead: rotary positions, RMS norms, gated layers, and three heads of queries
for each head of keys and values.

The model takes any number of tokens and of tokens in its cache. Single tokens get a plan of their own, and prompts
of all lengths another one. If ONNX Runtime is installed, it does the same with the same file. The weights are random,
and the same in every run. So are the tokens, which have no meaning.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import unity_collage as uc

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
import sized_models

HEADS, SHARED, MOST_TOKENS = 12, 4, 1024

Step = Callable[[Mapping[str, Any]], Sequence[Any]]
"""From inputs to the logits of the last token, and the keys and values of all tokens, which the next step reads."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--llama", action="store_true", help="a decoder like Llama instead")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768, help="a multiple of 12, the number of heads")
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--prompt", type=int, default=64, help="tokens that are read at once")
    parser.add_argument("--tokens", type=int, default=64, help="tokens that are made one by one")
    parser.add_argument("--with-onnxruntime", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.with_onnxruntime:  # in a process of its own: two pools of threads would disturb each other
        tell("ONNX Runtime", onnxruntime_step(options.with_onnxruntime), options)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpt2.onnx"
        onnx.save(made(options), path)
        program = uc.compile(path)
        tell("unity_collage", lambda inputs: program(inputs), options)
        subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--with-onnxruntime", str(path)], check=False
        )


def made(options: argparse.Namespace) -> onnx.ModelProto:
    if options.llama:
        inner = 8 * options.width // 3
        return sized_models.llama(options.width, HEADS, SHARED, options.layers, inner, options.vocabulary)
    return sized_models.decoder(options.width, HEADS, options.layers, options.vocabulary, MOST_TOKENS)


def tell(name: str, step: Step, options: argparse.Namespace) -> None:
    """Generate tokens, and print them and how many there were in a second."""
    generated(step, options, 2)  # the first calls make what depends on sizes
    tokens, reading, making = generated(step, options, options.tokens)
    print(f"{name}: {', '.join(map(str, tokens[:8]))}, ...")
    print(
        f"  prompt of {options.prompt} tokens in {reading * 1e3:.1f} ms, then {len(tokens) / making:.1f} tokens/s"
    )


def generated(step: Step, options: argparse.Namespace, count: int) -> tuple[list[int], float, float]:
    """The most likely tokens behind a random prompt, and the seconds for the prompt and for the tokens."""
    caches = [f"{kind}{layer}" for layer in range(options.layers) for kind in ("key", "value")]
    heads = SHARED if options.llama else HEADS
    state = {name: np.zeros((1, heads, 0, options.width // HEADS), np.float32) for name in caches}
    prompt = np.random.default_rng(0).integers(0, options.vocabulary, (1, options.prompt))
    begin = time.perf_counter()
    logits, *new = step({"x": prompt, **state})
    middle = time.perf_counter()
    tokens: list[int] = []
    for _ in range(count):
        tokens.append(int(np.asarray(logits).argmax()))
        state = dict(zip(caches, new, strict=True))
        logits, *new = step({"x": np.array([tokens[-1:]]), **state})
    return tokens, middle - begin, time.perf_counter() - middle


def onnxruntime_step(path: str) -> Step:
    try:
        import onnxruntime
    except ImportError:
        sys.exit("ONNX Runtime is not installed")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = uc.num_threads()
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, dict(inputs))


if __name__ == "__main__":
    main()
