"""Models to try: real architectures with random weights that are drawn from seeds, without a network."""

from .draw import drawn
from .inputs import random_inputs_of
from .models import EXAMPLES, Example, example

__all__ = ["EXAMPLES", "Example", "drawn", "example", "random_inputs_of"]
