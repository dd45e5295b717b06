"""`headrace up` and its nodes as a person runs them: processes of their own, on free ports."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx

from controlplane import child
from controlplane.config.load import load
from controlplane.config.settings import ExtProcSettings, Settings
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.connection import EtcdAccess
from headrace.one_machine import next_port
from headrace_protos.headrace.v1 import decision_pb2, fleet_pb2, fleet_pb2_grpc
from support.processes import words_of
from support.waiting import until

START_SECONDS = 90.0
STOP_SECONDS = 20.0
STARTS = 3
TAKEN = ("cannot listen on", "address already in use", "cannot bind")

# Tests pass on both transports of the filter: HEADRACE_TEST_TRANSPORT says which one.
TRANSPORT = os.environ.get("HEADRACE_TEST_TRANSPORT", ExtProcSettings().transport)

FREE_PORTS = f"""
gateway: {{address: "127.0.0.1:0"}}
control_plane: {{grpc: "127.0.0.1:0", xds: "127.0.0.1:0", metrics: "127.0.0.1:0"}}
ext_proc: {{transport: {TRANSPORT}, listen: "127.0.0.1:0", health: "127.0.0.1:0", metrics: "127.0.0.1:0"}}
envoy: {{admin: "127.0.0.1:0", concurrency: 1}}
"""


# Several workers must share a store of sessions, or look for none.
NO_SESSIONS = "policy: {sessions: {headers: [], body_fields: []}}\n"
TWO_WORKERS = FREE_PORTS.replace("ext_proc: {", "ext_proc: {workers: 2, ") + NO_SESSIONS


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that ran to its end."""

    status: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class RunningSystem:
    """`addresses` are those of the ready file; `folder` holds the logs and the state."""

    addresses: dict[str, str]
    process: asyncio.subprocess.Process
    folder: Path
    http: httpx.AsyncClient
    fleet: fleet_pb2_grpc.FleetStub

    @property
    def gateway(self) -> str:
        return f"http://{self.addresses['gateway']}"

    async def headrace(self, *arguments: str, stdin: bytes = b"") -> Ended:
        """Runs the command line against this system's control plane."""
        return await headrace(*arguments, "--control-plane", self.addresses["grpc"], stdin=stdin)

    async def nodes(self) -> list[fleet_pb2.Node]:
        return list((await self.fleet.ListNodes(fleet_pb2.ListNodesRequest())).nodes)

    async def pools(self) -> list[fleet_pb2.Pool]:
        return list((await self.fleet.ListPools(fleet_pb2.ListPoolsRequest())).pools)

    async def recorded(self, response: httpx.Response) -> decision_pb2.RecordedDecision:
        """The decision of a request, once the access log has brought it to the control plane."""
        request_id = response.headers["x-request-id"]

        async def found() -> decision_pb2.RecordedDecision | None:
            answer = await self.fleet.ListDecisions(fleet_pb2.ListDecisionsRequest(limit=1000))
            return next((d for d in answer.decisions if d.request_id == request_id), None)

        recorded: decision_pb2.RecordedDecision = await until(found)
        return recorded

    async def until_pools(self, *names: str) -> None:
        """Waits until just these pools have a ready node, and requests are led to them."""

        async def ready() -> bool:
            found = sorted(pool.name for pool in await self.pools() if pool.ready_nodes)
            return found == sorted(names) and await self.leads_to_all_pools()

        await until(ready, START_SECONDS)

    async def until_node(self, node_id: str) -> fleet_pb2.Node:
        """The node once it is ready, and requests can be led to it."""

        async def ready() -> fleet_pb2.Node | None:
            node = next((node for node in await self.nodes() if node.spec.node_id == node_id and node.ready), None)
            return node if node is not None and await self.leads_to_all_pools() else None

        node: fleet_pb2.Node = await until(ready, START_SECONDS)
        return node

    async def leads_to_all_pools(self) -> bool:
        """What the control plane says comes true a little later: filters hear of it last, and Envoy sends nothing to a
        node that it has not found healthy itself."""
        pools = await self.pools()
        counts = {
            "headrace_routing_table_pools": len(pools),
            "headrace_routing_table_ready_nodes": sum(pool.ready_nodes for pool in pools),
        }
        settings = self.settings()
        workers = settings.ext_proc.workers or 1
        if not all([await self.filter_metrics(name, settings) == [count] * workers for name, count in counts.items()]):
            return False
        healthy = await self.healthy_endpoints()
        # A pool's own cluster has no node that quiesces.
        return all(healthy.get(pool.name, 0) >= pool.ready_nodes - pool.quiescing_nodes for pool in pools)

    async def healthy_endpoints(self) -> dict[str, int]:
        """How many Envoy sends to, by cluster."""
        listed = await self.http.get(f"http://{self.addresses['envoy_admin']}/clusters?format=json")
        return {
            cluster["name"]: sum(
                not host["health_status"].get("failed_active_health_check") for host in cluster.get("host_statuses", [])
            )
            for cluster in listed.json()["cluster_statuses"]
        }

    @asynccontextmanager
    async def node(self, engine_url: str, node_id: str, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """The agent of an engine as a process, as long as the context lasts; it leaves gracefully."""
        argv = [sys.executable, "-m", "headrace", "node", "--engine-url", engine_url, "--node-id", node_id]
        # What reaches an engine is then what a test sends.
        argv += ["--control-plane", self.addresses["grpc"], "--drain-grace", "1", "--no-ask-for-usage", *flags]
        with (self.folder / f"{node_id}.log").open("ab") as log:
            process = await child.start(argv, stdout=log)
        try:
            yield process
        finally:
            await child.stop(process, STOP_SECONDS)

    def pid_of(self, part: str) -> int:
        """The process id of a part, by a word of its command line such as `ext-proc`."""
        for pid, argv in _children_of(self.process.pid):
            if part in argv:
                return pid
        raise AssertionError(f"no child of headrace up runs {part}: {list(_children_of(self.process.pid))}")

    async def filter_metric(self, name: str) -> float:
        """The sum of one sample, such as `headrace_waiting_requests`, over all filter workers that answer."""
        return sum(await self.filter_metrics(name))

    async def filter_metrics(self, name: str, settings: Settings | None = None) -> list[float]:
        """One sample of each filter worker that answers; 0 where it has none. Who asks often reads `settings` once."""
        ext_proc = (settings or self.settings()).ext_proc
        found: list[float] = []
        for worker in range(ext_proc.workers or 1):
            try:
                text = (await self.http.get(f"http://{next_port(ext_proc.metrics, worker)}/metrics")).text
            except httpx.TransportError:
                continue
            found.append(sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} ")))
        return found

    def settings(self) -> Settings:
        """With the ports that the parts have."""
        argv = (Path("/proc") / str(self.pid_of("controlplane")) / "cmdline").read_bytes().decode().split("\0")
        return _loaded(Path(argv[argv.index("--config") + 1]).read_text())

    async def kill(self, part: str) -> None:
        """kill -9 of a part, and waits until `headrace up` has started it again."""
        pid = self.pid_of(part)
        os.kill(pid, signal.SIGKILL)

        def again() -> bool:
            return any(part in argv and other != pid for other, argv in _children_of(self.process.pid))

        await until(again, START_SECONDS)

    def etcd_is_another_than(self, pid: int) -> bool:
        """Whether `headrace up` has replaced the etcd that had this process id."""
        return any("--initial-cluster" in argv and other != pid for other, argv in _children_of(self.process.pid))

    async def delete_everything_in_etcd(self) -> int:
        """How many keys there were."""
        async with EtcdClient(EtcdAccess((self.addresses["etcd"],))) as client:
            listing = await client.list("/headrace/")
            for record in listing.records:
                await client.delete(record.key)
            return len(listing.records)

    def log(self, name: str) -> str:
        return (self.folder / "logs" / f"{name}.log").read_text(errors="replace")


@asynccontextmanager
async def running_system(config: str = FREE_PORTS) -> AsyncIterator[RunningSystem]:
    """`headrace up` until traffic can flow; it and all that it started are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="headrace-test-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(config)
        ready_file = folder / "ready.json"
        argv = [sys.executable, "-m", "headrace", "up", "--config", str(folder / "config.yaml")]
        argv += ["--ready-file", str(ready_file), "--log-dir", str(folder / "logs")]
        process = await _ready(argv, folder / "up.log", ready_file)
        try:
            addresses = json.loads(ready_file.read_text())
            async with (
                httpx.AsyncClient(base_url=f"http://{addresses['gateway']}", timeout=60.0, trust_env=False) as http,
                grpc.aio.insecure_channel(addresses["grpc"]) as channel,
            ):
                yield RunningSystem(addresses, process, folder, http, fleet_pb2_grpc.FleetStub(channel))
        finally:
            await child.stop(process, STOP_SECONDS)


async def _ready(argv: Sequence[str], log: Path, ready_file: Path) -> Process:
    """`headrace up` once it is; started again where somebody else took a port before it listened there itself."""
    for _ in range(STARTS):
        with log.open("wb") as output:
            process = await child.start(argv, stdout=output)
        if await _becomes_ready(process, ready_file):
            return process
        if not any(taken in _text(log) for taken in TAKEN):
            break
    raise AssertionError(_text(log))


async def _becomes_ready(process: Process, ready_file: Path) -> bool:
    try:
        await until(lambda: process.returncode is not None or ready_file.exists(), START_SECONDS)
    except BaseException:
        await child.stop(process, STOP_SECONDS)
        raise
    return process.returncode is None


def _text(log: Path) -> str:
    return log.read_text(errors="replace")


async def headrace(*arguments: str, stdin: bytes = b"") -> Ended:
    """Runs the command line to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(START_SECONDS):
        out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


@functools.cache
def _loaded(text: str) -> Settings:
    """Read once: tests ask again and again while they wait."""
    return load(text, "headrace.yaml")


def _children_of(parent: int) -> list[tuple[int, list[str]]]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "stat").read_text().rpartition(")")[2].split()
                argv = words_of(folder)
            except OSError:
                continue  # it has ended meanwhile
            if int(status[1]) == parent and status[0] != "Z":
                found.append((int(folder.name), argv))
    return found
