"""The child's side of a connection: a process that answers the requests of its parent."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..errors import last_line
from .child import Reply
from .log import send_errors
from .process import Message

Say = Callable[[Message], None]
"""Sends one message to the parent."""


def serve(make: Callable[[dict[str, Any]], Callable[[dict[str, Any]], Reply]]) -> None:
    """Answer requests until the parent closes the connection; ``make`` turns the hello into the answering function.

    An exception becomes a reply with its last line as reason: a foreign compiler or kernel has failed.
    """

    def ready(hello: dict[str, Any], _connection: int, say: Say) -> Callable[[Message], None]:
        answers: list[Callable[[Message], Reply]] = []

        def answer(request: Message) -> None:
            try:
                if not answers:
                    answers.append(make(hello))
                reply = answers[0](request)
            except Exception as error:
                reply = {"reason": f"{type(error).__name__}: {last_line(error)}"}
            say(reply)

        return answer

    serve_messages(ready)


def serve_messages(ready: Callable[[dict[str, Any], int, Say], Callable[[Message], None]]) -> None:
    """:func:`serve` where an answer is several messages.

    ``ready`` gets the hello, the file descriptor of the connection, and a function that sends a message. It returns
    the function that answers a request by sending messages.
    """
    with socket.socket(fileno=int(sys.argv[1])) as connection, connection.makefile("rb") as requests:

        def say(message: Message) -> None:
            connection.sendall(json.dumps(message).encode() + b"\n")

        with suppress(BrokenPipeError):
            answer = ready(json.loads(requests.readline()), connection.fileno(), say)
            say({"ready": True})
            send_errors(say)
            for line in requests:
                answer(json.loads(line))
