"""Removes private data from texts for bug reports: home folders, user names, hosts of databases, secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

T = TypeVar("T")

_SECRET = re.compile("KEY|TOKEN|SECRET|PASS|AUTH", re.IGNORECASE)
"""The values of environment variables with such a part in their names are not shown."""

_URL = re.compile(r"(?<=://)(?:[^@/\s]*@)?[^/\s?#]*")
"""The user, the password and the host of a URL."""

_ANY_HOME = re.compile(r"(?<=/home/)[^/\s:]+|(?<=/Users/)[^/\s:]+")
"""The names of users in the paths of their folders."""


@dataclass(frozen=True, slots=True)
class Privacy:
    """What to leave out of texts."""

    home: str
    """Becomes ``~``."""
    users: tuple[str, ...]
    """Names of users; they become ``USER`` where they are a part of a path or in quotation marks."""
    hosts: tuple[str, ...] = ()
    """Names of hosts; they become ``HOST``."""

    def text(self, text: str) -> str:
        """``text`` without them."""
        if self.home not in ("", "/"):
            text = re.sub(rf"(?<![\w/.~-]){re.escape(self.home)}(?![^/\s:;,'\")])", "~", text)
        text = _ANY_HOME.sub("USER", _URL.sub("HOST", text))
        for user in self.users:
            text = re.sub(rf"(?<=[/\"'=]){re.escape(user)}(?=[/\s:;,\"']|$)", "USER", text)
        for host in self.hosts:
            text = re.sub(rf"(?<![\w.]){re.escape(host)}(?![\w.])", "HOST", text)
        return text

    def of(self, value: T) -> T:
        """``value`` with the private parts removed from its texts, also from those in collections and dataclasses."""
        if isinstance(value, str):
            return cast("T", self.text(value))
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{each.name: self.of(getattr(value, each.name)) for each in fields(value)})
        if isinstance(value, Mapping):
            return cast("T", {key: self.of(item) for key, item in cast("Mapping[Any, Any]", value).items()})
        if isinstance(value, tuple):
            return cast("T", tuple(self.of(item) for item in cast("tuple[Any, ...]", value)))
        return value


def privacy(hosts: Iterable[str | None] = (), users: Iterable[str | None] = ()) -> Privacy:
    """That of this process, with more names of ``hosts`` and ``users``."""
    names = [os.environ.get("USER"), os.environ.get("LOGNAME"), Path.home().name, _account(), *users]
    known = tuple(dict.fromkeys(name for name in names if name))
    return Privacy(str(Path.home()), known, tuple(filter(None, hosts)))


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Environment variables without the values of those that are secrets by their names."""
    return {name: "(set)" if _SECRET.search(name) else value for name, value in settings.items()}


def _account() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):  # containers have users without an entry
        return ""
