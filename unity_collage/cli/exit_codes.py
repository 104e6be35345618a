"""The exit codes of all commands, and the error that stands for one. They do not change between versions."""

from __future__ import annotations

from ..errors import CollageError

DONE, FAILED, USAGE, FAULT, INTERRUPTED, CUT_OFF = 0, 1, 2, 70, 130, 141

EXIT_CODES = {
    DONE: "the command did what it was asked to do",
    FAILED: "the command failed, or what it checked does not hold; one line on standard error says why",
    USAGE: "the command line is wrong; one line on standard error says what is wrong",
    FAULT: "a fault of unity-collage itself; one line names a file with the details to report",  # EX_SOFTWARE
    INTERRUPTED: "Ctrl-C ended it; costs measured so far are stored",
    CUT_OFF: "the reader of its output has gone, as in `| head`",  # as shells count SIGPIPE
}
"""What each code means."""


class UsageError(CollageError):
    """The command line is wrong on any machine and with any files: the code is ``USAGE``."""


def listed() -> str:
    """The codes for the help, a line each."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items())
