"""What a module of this package measures in a process of its own, where no threads of other libraries run."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from ..errors import CollageError
from .environment import environment

_MOST_SECONDS = 300.0
"""The limit: it takes seconds, and longer on a busy machine."""


def measured_by(module: str, *arguments: str) -> Any:
    """The JSON data that ``module`` prints when it is run; raises CollageError if it fails."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(
            command,
            env=environment(),
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
            timeout=_MOST_SECONDS,
            start_new_session=True,  # Ctrl-C in a terminal reaches every process of ours there
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        reason = f"no answer within {_MOST_SECONDS:g} s"
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        reason = f"exit code {error.returncode}{': ' if lines else ''}{lines[-1] if lines else ''}"
    except (OSError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise CollageError(f"this machine cannot be measured by {module}: {reason}")
