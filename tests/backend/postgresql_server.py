"""A PostgreSQL server of its own for a test: in a temporary folder, as a user without rights, on a free port."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

REQUIRED = "COLLAGE_REQUIRE_POSTGRESQL"
"""Set by ``.ci/run``: no server is then a failure, not a reason to skip."""

USER, PASSWORD = "collage", "a/pass@word:1"


def why_unavailable() -> str | None:
    """Why no server can be started here, or None."""
    if _program("initdb") is None or _program("postgres") is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    if os.getuid() == 0 and _unprivileged() is None:
        return "PostgreSQL does not run as root, and there is no user postgres or nobody to run it as"
    return None


@contextmanager
def server() -> Iterator[str]:
    """The URL of an empty database ``costs``, on a server that runs until the block ends and asks for the password."""
    with tempfile.TemporaryDirectory(prefix="collage-postgresql-") as name:
        folder, port = Path(name), _free_port()
        (folder / "password").write_text(PASSWORD)
        for path in (folder, folder / "password"):
            _give_away(path)
        _run(["initdb", "--username", USER, "--pwfile", str(folder / "password"), "--auth", "scram-sha-256",
              "--encoding", "UTF8", "--no-sync", "--pgdata", str(folder / "data")])  # fmt: skip
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        control = ["pg_ctl", "--pgdata", str(folder / "data"), "--wait"]
        _run([*control, "--log", str(folder / "log"), "--options", options, "start"])
        try:
            url = f"postgresql://{USER}:{_quoted(PASSWORD)}@127.0.0.1:{port}"
            _create_database(f"{url}/postgres", "costs")
            yield f"{url}/costs"
        finally:
            _run([*control, "--mode", "immediate", "stop"])


def _create_database(url: str, name: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")


def _run(command: Sequence[str]) -> None:
    """Run one of the server's programs as a user without rights; its messages are the error."""
    program = _program(command[0])
    assert program is not None
    user = _unprivileged() if os.getuid() == 0 else None
    # Not through pipes: the server would keep them open for as long as it runs.
    with tempfile.TemporaryFile() as messages:
        done = subprocess.run(
            [program, *command[1:]], stdin=subprocess.DEVNULL, stdout=messages, stderr=messages, cwd="/",
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            **({} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}),
        )  # fmt: skip
        messages.seek(0)
        assert done.returncode == 0, messages.read().decode()


def _program(name: str) -> str | None:
    """Debian keeps the server's programs off the path, in a folder for each version."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    return next(
        (str(path / name) for path in reversed(folders) if (path / name).exists()), shutil.which(name)
    )


def _unprivileged() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def _give_away(path: Path) -> None:
    user = _unprivileged() if os.getuid() == 0 else None
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")
