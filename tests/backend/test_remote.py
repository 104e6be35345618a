"""RemoteCost: a tracker and two servers on loopback, one of which dies while it measures."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import numpy as np
import pytest
from remote_machines import PATIENCE, Machine, end_all, served, tracked, without_rpc
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.annotations import COSTS
from unity_collage.cost.asking import workloads
from unity_collage.cost.method import Method
from unity_collage.errors import CollageError
from unity_collage.measure.remote import RemoteCost, client, messages, servers
from unity_collage.passes import AnnotateCandidates, EstimateCosts
from unity_collage.plan.costs import Cost

QUICK = Method(min_runs=3, max_runs=3, max_seconds=0.05, max_warmup_seconds=0.0)
KEY = "test"


@pytest.fixture(scope="module")
def tracker() -> Iterator[str]:
    with tracked() as address:
        yield address


@pytest.fixture(scope="module")
def two_servers(tracker: str) -> Iterator[list[Machine]]:
    with served(tracker, [KEY, KEY]) as machines:
        yield machines


def layer() -> IRModule:
    weights = relax.const(np.random.default_rng(0).standard_normal((32, 16), dtype="float32"))
    x = relax.Var("x", relax.TensorType((4, 32), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(R.matmul(x, weights))
            result = builder.emit_output(R.nn.relu(product))
        builder.emit_func_output(result)
    return builder.get()


def costed(model: RemoteCost) -> dict[str, Cost]:
    with model.target():
        mod = AnnotateCandidates(("onednn", "openblas", "tvm"))(layer())
        return COSTS.read(EstimateCosts(model)(mod)["main"]).by_key


@without_rpc
def test_caches_and_peaks_are_those_of_the_server_and_measured_once(
    tracker: str, two_servers: list[Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = uc.CostDatabase(tmp_path / "costs.sqlite")
    with RemoteCost(database, method=QUICK, tracker=tracker, key=KEY, wait_seconds=PATIENCE) as model:
        assert model.evict_bytes(1 << 10) == 0
        behind = model.evict_bytes(1 << 40)
        assert behind > 0
        with model.target():
            mod = AnnotateCandidates(("onednn", "tvm"))(layer())
            asked = list(workloads(mod["main"], model).values())
            bounds = model.lower_bounds(asked)
    assert bounds.keys() == {workload.key for workload in asked}
    assert all(0 < bound < 1e-3 for bound in bounds.values())
    monkeypatch.setattr(client.RemoteClient, "machine", lambda _self: pytest.fail("measured again"))
    with RemoteCost(database, method=QUICK, tracker=tracker, key=KEY, wait_seconds=PATIENCE) as again:
        assert again.evict_bytes(1 << 40) == behind
        with model.target():
            assert again.lower_bounds(asked) == bounds


@without_rpc
def test_costs_of_servers_are_kept_like_those_of_this_machine(
    tracker: str, two_servers: list[Machine], tmp_path: Path
) -> None:
    database = uc.CostDatabase(tmp_path / "costs.sqlite")
    with RemoteCost(database, method=QUICK, tracker=tracker, key=KEY, wait_seconds=PATIENCE) as model:
        assert {cost.origin for cost in costed(model).values()} == {"measured"}
        assert {cost.origin for cost in costed(model).values()} == {"database"}
        program = uc.compile(layer(), estimator=model)
    x = np.random.default_rng(1).standard_normal((4, 32), dtype="float32")
    weights = np.random.default_rng(0).standard_normal((32, 16), dtype="float32")
    np.testing.assert_allclose(program(x).numpy(), np.maximum(x @ weights, 0), rtol=1e-4, atol=1e-4)
    texts = "\n".join(database.fingerprints().values())
    assert "cores" in texts and "threads: " in texts and "version: " in texts


@without_rpc
def test_a_server_is_free_again_after_a_session_that_crashed(
    tracker: str, two_servers: list[Machine]
) -> None:
    await_both(tracker, two_servers)
    pool = servers.Servers(messages.address(tracker), KEY, PATIENCE, PATIENCE)
    before = [process for machine in two_servers for process in inside_of(machine)]
    pool.current()
    (session,) = [each for machine in two_servers for each in inside_of(machine) if each not in before]
    session.send_signal(signal.SIGSEGV)
    await_both(tracker, two_servers)
    assert any("has ended with exit code -11" in machine.said() for machine in two_servers)


def inside_of(machine: Machine) -> list[Any]:
    """The processes that a server has started."""
    import psutil

    return psutil.Process(machine.pid).children(recursive=True)


@without_rpc
def test_both_servers_measure_and_when_one_dies_the_other_one_goes_on(
    tracker: str,
    two_servers: list[Machine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first two questions wait for each other, so both servers are in use; then one of them dies."""
    await_both(tracker, two_servers)
    database = uc.CostDatabase(tmp_path / "costs.sqlite")
    asked: list[frozenset[str]] = []
    users: set[int] = set()
    both = Barrier(2, action=lambda: end_all(two_servers[0]))
    ask = servers.Server.ask

    def watched(server: servers.Server, request: Any) -> Any:
        if request["ask"] == "compare":
            asked.append(frozenset(request["candidates"]))
            users.add(id(server))
            if len(asked) <= 2:
                both.wait(PATIENCE)
        return ask(server, request)

    monkeypatch.setattr(servers.Server, "ask", watched)
    with RemoteCost(database, method=QUICK, tracker=tracker, key=KEY, wait_seconds=PATIENCE) as model:
        costs = costed(model)
    assert {key.split(":")[0] for key in costs} == {"onednn", "openblas", "tvm"}
    assert {key: cost.reason for key, cost in costs.items() if cost.seconds is None} == {}
    assert len(users) == 2 and sorted(Counter(asked).values()) == [1, 1, 2], "one was lost and is asked again"
    assert len(database) == len(costs)
    assert [server.poll() is None for server in two_servers] == [False, True]


def await_both(tracker: str, machines: list[Machine]) -> None:
    """Until both servers have announced themselves: they import TVM, on a busy machine for long."""
    pool = servers.Servers(messages.address(tracker), KEY, PATIENCE, PATIENCE)
    end_of_patience = time.monotonic() + PATIENCE
    while pool.free() < 2 and time.monotonic() < end_of_patience:
        time.sleep(0.2)
    assert pool.free() == 2, "\n".join(f"{machine.poll()}: {machine.said()}" for machine in machines)


@without_rpc
def test_a_server_ends_with_all_its_processes(tracker: str, two_servers: list[Machine]) -> None:
    """The last test with servers, of which the second one still runs."""
    pool = servers.Servers(messages.address(tracker), KEY, PATIENCE, PATIENCE)
    pool.current()
    inside = inside_of(two_servers[1])
    two_servers[1].terminate()
    two_servers[1].wait(PATIENCE)
    assert len(inside) >= 2
    end_of_patience = time.monotonic() + PATIENCE
    while any(map(runs, inside)) and time.monotonic() < end_of_patience:
        time.sleep(0.2)
    assert not any(map(runs, inside))


def runs(process: Any) -> bool:
    import psutil

    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_no_server_is_one_clear_line() -> None:
    with pytest.raises(CollageError, match=r"no server for 'test' at the tracker 127.0.0.1:1 within 0.5 s: "):
        RemoteCost(tracker="127.0.0.1:1", key=KEY, wait_seconds=0.5).target()


@without_rpc
def test_a_key_that_nobody_has_is_one_clear_line(tracker: str) -> None:
    with pytest.raises(CollageError, match=r"no server for 'other' .* none has announced itself"):
        RemoteCost(tracker=tracker, key="other", wait_seconds=1.0).target()


class _Server:
    """Reports this number of threads, and that it knows no kernel."""

    def __init__(self, threads: int, lost_after: int):
        self._threads = threads
        self._left = lost_after

    def ask(self, request: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise servers.Lost("gone")
        return {"threads": self._threads, "backends": {name: {} for name in request["backends"]}}


class _Servers:
    name = "'test'"

    def __init__(self, *running: _Server):
        self._running = list(running)

    def current(self) -> _Server:
        return self._running[0]

    def drop(self) -> None:
        del self._running[0]


def test_servers_of_one_key_are_alike() -> None:
    pool = _Servers(_Server(2, lost_after=1), _Server(4, lost_after=9))
    remote = client.RemoteClient(pool, QUICK, 1.0, None)
    assert remote.facts("{}", "tvm")["threads"] == 2
    with pytest.raises(CollageError, match="two servers for 'test' differ"):
        remote._on_some(lambda server: [server.ask({"backends": []}), remote._check_alike(server)])


def test_a_question_that_every_server_is_lost_over_is_given_up() -> None:
    pool = _Servers(*[_Server(2, lost_after=0) for _ in range(4)])
    with pytest.raises(CollageError, match="3 servers for 'test' were lost: gone"):
        client.RemoteClient(pool, QUICK, 1.0, None).ask({"ask": "launch"})


def test_a_client_that_is_closed_asks_for_no_server() -> None:
    remote = client.RemoteClient(_Servers(_Server(2, lost_after=9)), QUICK, 1.0, None)
    remote.close()
    with pytest.raises(CollageError, match="the session with servers for 'test' is closed"):
        remote.ask({"ask": "launch"})


def test_a_server_that_is_silent_is_lost() -> None:
    with pytest.raises(servers.Lost, match=r"no answer within 0\.1 s"):
        servers.within(0.1, Event().wait)


def test_tuning_needs_the_machine_itself() -> None:
    with pytest.raises(CollageError, match="RemoteCost cannot tune kernels"):
        RemoteCost().tuning(4)


def test_an_address_has_a_port() -> None:
    assert messages.address("::1:9190") == ("::1", 9190)
    with pytest.raises(ValueError, match="write host:port"):
        messages.address("localhost")


def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "find_spec", lambda name: None if name == "tornado" else name)
    assert messages.why_unavailable() == "tornado missing: pip install 'unity_collage[rpc]'"


def test_importing_the_package_imports_no_extra() -> None:
    code = (
        "import sys, unity_collage, unity_collage.measure.remote, unity_collage.measure.tuning.tuner; "
        "print([name for name in ('xgboost', 'tornado', 'psutil', 'cloudpickle') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
