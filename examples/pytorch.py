"""Compile a PyTorch module for this machine, run it on tensors of torch, and do the same with torch.compile.

usage: pytorch.py

The first run measures kernels, later runs take seconds.
"""

import torch
from rich.console import Console
from torch import nn

import unity_collage as uc
from unity_collage.report import plan_summary

console = Console(highlight=False)


class Tagger(nn.Module):
    """A label for each word of a sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.steps = nn.LSTM(32, 24, bidirectional=True, batch_first=True)
        self.labels = nn.Linear(48, 7)

    def forward(self, sentence: torch.Tensor) -> torch.Tensor:
        states, _ = self.steps(self.words(sentence))
        return self.labels(states)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # PyTorch's threads would compete with those of the program
    module, sentence = Tagger().eval(), torch.randint(0, 100, (1, 12))

    program = uc.compile(module, (sentence,))  # exported by torch, weights become constants
    for function, plan in program.plan.items():
        console.print(plan_summary(function, plan))
    labels = torch.from_dlpack(program(sentence))
    with torch.no_grad():
        torch.testing.assert_close(labels, module(sentence), rtol=1e-4, atol=1e-5)
    console.print(f"labels {tuple(labels.shape)} agree with eager")

    compiled = torch.compile(module, backend="unity_collage", options={"fallback": False})
    with torch.no_grad():
        torch.testing.assert_close(compiled(sentence), module(sentence), rtol=1e-4, atol=1e-5)
    console.print("torch.compile agrees with eager")


if __name__ == "__main__":
    main()
