"""``python -m unity_collage``: the command line where its script is not on the path."""

import sys

from .cli import command

if __name__ == "__main__":
    sys.exit(command())
