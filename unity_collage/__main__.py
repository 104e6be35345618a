"""``python -m unity_collage``: the command line where its script is not on the path."""

from .cli import command

if __name__ == "__main__":
    command()
