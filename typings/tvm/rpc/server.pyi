import socket
from collections.abc import Callable
from typing import Any

from tvm.support.utils import TempDirectory

_serving: Callable[..., None]

def _serve_loop(sock: socket.socket, load_library: str | None, work_path: TempDirectory) -> None: ...

class _PopenWorker:
    def join(self, timeout: float | None = None) -> None: ...

class Server:
    proc: _PopenWorker
    host: str
    port: int
    def __init__(
        self,
        host: str = "0.0.0.0",
        port: int = 9091,
        port_end: int = 9199,
        is_proxy: bool = False,
        tracker_addr: tuple[str, int] | None = None,
        key: str = "",
        load_library: str | None = None,
        custom_addr: str | None = None,
        silent: bool = False,
        no_fork: bool = False,
        server_init_callback: Callable[[], Any] | None = None,
        reuse_addr: bool = True,
        timeout: float | None = None,
    ) -> None: ...
