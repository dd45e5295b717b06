"""`headrace up` as a process: how it ends, what it says when it cannot start, and TLS, tokens and several workers."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
import yaml

from controlplane import child
from headrace.one_machine import next_port
from support.certificates import Authority
from support.engine import EngineShape, running_engine
from support.processes import descendants, is_running
from support.system import FREE_PORTS, TWO_WORKERS, Ended, RunningSystem, headrace, running_system
from support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

NODE_TOKEN, OPERATOR_TOKEN = "node-token-5d1c", "operator-token-83fe"


@asynccontextmanager
async def started(folder: Path, config: str, *flags: str) -> AsyncIterator[Process]:
    """`headrace up` from the moment it is started."""
    (folder / "config.yaml").write_text(config)
    argv = [sys.executable, "-m", "headrace", "up", "-c", str(folder / "config.yaml"), *flags]
    process = await child.start(argv, stdout=PIPE)
    try:
        yield process
    finally:
        await child.stop(process, 20)


async def ended(process: Process) -> Ended:
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, said.decode(), "")


# --- the end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)],
)
async def test_no_process_outlives_it(number: signal.Signals, status: int) -> None:
    async with running_system() as system:
        started = descendants(system.process.pid)
        assert len(started) >= 4
        system.process.send_signal(number)
        async with asyncio.timeout(20):
            assert await system.process.wait() == status
        await until(lambda: not any(is_running(pid) for pid in started), 20)


@pytest.mark.parametrize("part", ["--initial-cluster", "controlplane", "envoy"])
async def test_ctrl_c_while_it_starts_leaves_nothing_behind(tmp_path: Path, part: str) -> None:
    ready_file = tmp_path / "ready.json"
    ready_file.write_text("of a former run")
    async with started(tmp_path, FREE_PORTS, "--ready-file", str(ready_file)) as process:
        await until(lambda: any(part in argv for argv in descendants(process.pid).values()), 30)
        begun = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        end = await ended(process)
        assert end.status == 1
        assert "stopping ...\n" in end.out  # logs of parts may come between
        assert end.out.endswith("it was stopped before it was up\n")
        await until(lambda: not any(is_running(pid) for pid in begun))
    assert not ready_file.exists()


# --- a start that fails --------------------------------------------------------------------------------------------


async def test_an_address_that_is_taken_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        config = FREE_PORTS.replace('gateway: {address: "127.0.0.1:0"}', f'gateway: {{address: "{address}"}}')
        async with started(tmp_path, config) as process:
            end = await ended(process)
    assert end.status == 1
    assert f"error: gateway.address: cannot listen on {address}: Address already in use" in end.out


async def test_an_etcd_that_does_not_answer_is_named_while_it_is_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    said = b""
    async with started(tmp_path, FREE_PORTS + f'etcd: {{endpoints: ["{address}"]}}\n') as process:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while b"still starting: waiting for etcd: no connection to etcd at " + address.encode() not in said:
                said += await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert (await ended(process)).status == 1


async def test_a_part_that_does_not_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    tokens = tmp_path / "no-such-tokens"
    config = FREE_PORTS.replace("control_plane: {", f"control_plane: {{auth: {{operator_tokens_file: {tokens}}}, ")
    logs = tmp_path / "logs"
    async with started(tmp_path, config, "--log-dir", str(logs)) as process:
        end = await ended(process)
    assert end.status == 1
    assert "error: control-plane ended with status 2 while starting" in end.out
    assert f"control_plane.auth.operator_tokens_file: {tokens} cannot be read: No such file or directory" in end.out
    assert str(logs / "control-plane.log") in end.out


async def test_an_etcd_that_does_not_start_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no directory")
    async with started(tmp_path, FREE_PORTS + f"etcd: {{data_dir: {tmp_path / 'data'}}}\n") as process:
        end = await ended(process)
    assert end.status == 1
    assert "error: " in end.out
    assert "Traceback" not in end.out


# --- TLS, tokens and several workers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Secured:
    """A system whose gRPC port asks for TLS with client certificates and for tokens, with two filter workers."""

    system: RunningSystem
    config: Path
    folder: Path

    async def headrace(self, *arguments: str, token: str | None = "operators") -> Ended:
        """Against this system, by its configuration file; `token` names a file of tokens."""
        flags = ["-c", str(self.config), "--control-plane", self.system.addresses["grpc"]]
        if token is not None:
            flags += ["--token-file", str(self.folder / token)]
        return await headrace(*arguments, *flags)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    (server, server_key), (caller, caller_key) = authority.issue("server"), authority.issue("caller")
    (folder / "nodes").write_text(f"# nodes\n{NODE_TOKEN}\n")
    (folder / "operators").write_text(f"{OPERATOR_TOKEN}\n")
    (folder / "strangers").write_text("stranger\n")
    settings = yaml.safe_load(TWO_WORKERS)
    settings["control_plane"] |= {
        "auth": {"node_tokens_file": str(folder / "nodes"), "operator_tokens_file": str(folder / "operators")},
        "tls": {"cert_file": str(server), "key_file": str(server_key), "client_ca_file": str(authority.file)},
    }
    settings["caller"] = {"ca_file": str(authority.file), "cert_file": str(caller), "key_file": str(caller_key)}
    settings["telemetry"] = {"log_level": "debug"}
    async with running_system(yaml.safe_dump(settings)) as system:
        yield Secured(system, system.folder / "config.yaml", folder)
        logs = [path.read_text(errors="replace") for path in system.folder.rglob("*.log")]
        assert len(logs) >= 5
        assert not any(token in log for log in logs for token in (NODE_TOKEN, OPERATOR_TOKEN))


async def test_both_workers_watch_the_table_over_tls_with_a_node_token(secured: Secured) -> None:
    status = json.loads((await secured.headrace("status", "--json")).out)
    assert len(status["filter_workers"]) == 2
    assert len(status["envoys"]) == 1


async def test_operators_need_an_operator_token(secured: Secured) -> None:
    assert (await secured.headrace("nodes")).status == 0
    shown = {"nodes": ", and the one shown is a node's", "strangers": ", and the one shown is not known here", None: ""}
    for token, says in shown.items():
        end = await secured.headrace("nodes", token=token)
        assert (end.status, end.out) == (1, "")
        assert end.err == (
            f"error: this call needs `authorization: Bearer <operator token>`{says}; "
            "name the file that holds it with --token-file\n"
        )


async def test_without_tls_nothing_is_answered(secured: Secured) -> None:
    end = await secured.system.headrace("nodes", "--token-file", str(secured.folder / "operators"))
    assert end.status == 1
    assert end.err.startswith(f"error: the control plane at {secured.system.addresses['grpc']} cannot answer: ")


async def test_a_node_joins_with_its_token_and_serves(secured: Secured) -> None:
    flags = ("--max-sequences", "4", "--format", "fp16", "-c", str(secured.config))
    async with (
        running_engine(EngineShape(model="m")) as engine,
        secured.system.node(engine.url, "n", *flags, "--token-file", str(secured.folder / "nodes")),
    ):

        async def is_ready() -> bool:
            listed = json.loads((await secured.headrace("nodes", "--json")).out)["nodes"]
            return any(node["ready"] for node in listed)

        await until(is_ready, 30)
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        answer = await until(lambda: _answered(secured.system.http, body))
        assert answer.headers["x-headrace-pool"] == "m/full/short/on_demand"


async def test_over_http_too_operators_need_their_token_and_probes_and_metrics_do_not(secured: Secured) -> None:
    async with httpx.AsyncClient(base_url=f"http://{secured.system.addresses['metrics']}", trust_env=False) as http:
        for path in ("/healthz", "/livez", "/readyz", "/metrics"):
            assert (await http.get(path)).status_code == 200
        for path in ("/status", "/decisions/recent"):
            for token in ({}, {"authorization": f"Bearer {NODE_TOKEN}"}):
                answer = await http.get(path, headers=token)
                assert answer.status_code == 401
                assert "authorization: Bearer <operator token>" in answer.text
        operator = {"authorization": f"Bearer {OPERATOR_TOKEN}"}

        async def are_the_same() -> bool:
            """Not so when something happened between the two looks."""
            shown = (await http.get("/status", headers=operator)).json()
            told = json.loads((await secured.headrace("status", "--json")).out)
            changing = {"uptime_seconds": None, "ledger": None}
            return bool(shown) and shown | changing == told | changing

        await until(are_the_same)
        listed = (await http.get("/decisions/recent", params={"limit": "5"}, headers=operator)).json()
        assert listed == json.loads((await secured.headrace("decisions", "-n", "5", "--json")).out)


async def test_each_worker_has_metrics_and_health_of_its_own(secured: Secured) -> None:
    settings = _settings_of_parts(secured.system)
    async with httpx.AsyncClient(trust_env=False) as http:
        for worker in range(2):
            metrics = await http.get(f"http://{next_port(settings['ext_proc']['metrics'], worker)}/metrics")
            assert "headrace_feed_connected 1.0" in metrics.text
            ready = await http.get(f"http://{next_port(settings['ext_proc']['metrics'], worker)}/readyz")
            assert (ready.status_code, ready.text) == (200, "ok\n")


async def test_a_killed_worker_comes_back(secured: Secured) -> None:
    await secured.system.kill("ext-proc")

    async def both() -> bool:
        return len(json.loads((await secured.headrace("status", "--json")).out)["filter_workers"]) == 2

    await until(both, 30)
    assert (await secured.system.http.get("/v1/models")).status_code == 200


async def _answered(http: httpx.AsyncClient, body: object) -> httpx.Response | None:
    response = await http.post("/v1/chat/completions", json=body)
    return response if response.status_code == 200 else None


def _settings_of_parts(system: RunningSystem) -> dict[str, dict[str, str]]:
    """As `headrace up` filled them in for its parts."""
    argv = next(argv for argv in descendants(system.process.pid).values() if "controlplane" in argv)
    settings: dict[str, dict[str, str]] = yaml.safe_load(Path(argv[argv.index("--config") + 1]).read_text())
    return settings
