"""docker-compose.yml, its configuration and the Dockerfile, checked without a Docker engine: no image is built here."""

from __future__ import annotations

import asyncio
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import yaml
from compose_spec import PyCompose

from controlplane.child import start, stop
from controlplane.config.addresses import split_address
from controlplane.config.load import load
from controlplane.config.settings import Settings
from controlplane.etcd.server import free_ports
from controlplane.grpc_serving import Health, bind, new_server
from headrace.cli import app
from headrace.demo.models import F16_FILE_NAME, FILE_NAME, find_q4_model
from headrace_protos.headrace.v1 import fleet_pb2, fleet_pb2_grpc, node_pb2
from support.program import run
from support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
ENGINES = {name for name, service in SERVICES.items() if "headrace.demo.engine" in service.get("entrypoint", ())}
CONFIGURATION = ROOT / "deploy" / "compose" / "headrace.yaml"


def is_headrace(service: dict[str, Any]) -> bool:
    """Whether it runs the image's own entrypoint."""
    return service["image"].startswith("headrace:") and "entrypoint" not in service


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load(CONFIGURATION.read_text(), str(CONFIGURATION))


def succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0


def compose_programs() -> Iterator[tuple[str, ...]]:
    if shutil.which("docker") and succeeds("docker", "compose", "version"):
        yield ("docker", "compose")
    if shutil.which("docker-compose"):
        yield ("docker-compose",)


def test_the_composition_follows_the_compose_specification() -> None:
    composition = PyCompose.from_json(json.dumps(yaml.safe_load(COMPOSE.read_text())))
    composition.validate()
    assert composition.service_names() == list(SERVICES)


def test_docker_itself_accepts_the_composition() -> None:
    programs = list(compose_programs())
    if not programs:
        pytest.skip("neither `docker compose` nor `docker-compose` is installed here")
    for program in programs:
        run(*program, "-f", COMPOSE, "config", "--quiet")


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_pinned_confined_and_waits_for_what_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert re.search(r":v?\d+\.\d+\.\d+$", service["image"])
    assert service["cap_drop"] == ["ALL"]
    for needed, waits in service.get("depends_on", {}).items():
        ends_by_itself = SERVICES[needed]["restart"] == "no"
        assert waits == {"condition": "service_completed_successfully" if ends_by_itself else "service_healthy"}


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if service["restart"] != "no"])
def test_each_service_that_goes_on_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if is_headrace(service)])
def test_each_headrace_command_is_one_that_the_command_line_takes(name: str) -> None:
    command: Any = typer.main.get_command(app)
    context = command.make_context("headrace", list(SERVICES[name]["command"]), resilient_parsing=True)
    _, chosen, rest = command.resolve_command(context, list(SERVICES[name]["command"]))
    chosen.make_context(chosen.name, rest)
    assert SERVICES[name]["environment"]["HEADRACE_CONFIG"] in {v.split(":")[1] for v in SERVICES[name]["volumes"]}


def test_the_engines_serve_the_files_that_are_made_for_them(tmp_path: Path) -> None:
    (tmp_path / F16_FILE_NAME).touch()  # one that is there is kept; making it takes long
    (program,) = SERVICES["models"]["command"]
    run(sys.executable, "-c", program.replace("/models", str(tmp_path)))
    served = {SERVICES[name]["command"][0] for name in ENGINES}
    assert served == {f"/models/{file.name}" for file in tmp_path.iterdir()}
    assert (tmp_path / FILE_NAME).resolve() == find_q4_model()


async def test_an_engine_starts_as_the_composition_says() -> None:
    _, _, *rest = SERVICES["engine-4bit"]["command"]
    (port,) = free_ports(1)
    engine = await start([sys.executable, "-m", "headrace.demo.engine", str(find_q4_model()), str(port), *rest])
    try:
        async with httpx.AsyncClient(trust_env=False) as client:

            async def healthy() -> bool:
                assert engine.returncode is None
                try:
                    return (await client.get(f"http://127.0.0.1:{port}/health")).is_success
                except httpx.TransportError:
                    return False

            await until(healthy, timeout=60)
    finally:
        await stop(engine, grace=10)


def test_each_named_volume_is_declared_and_each_mounted_file_is_there() -> None:
    declared = yaml.safe_load(COMPOSE.read_text())["volumes"]
    sources = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())}
    assert {source for source in sources if "/" not in source} == set(declared)
    assert all((ROOT / source).is_file() for source in sources if "/" in source)


def test_only_the_gateway_and_the_grpc_port_are_published_and_to_this_machine_alone(settings: Settings) -> None:
    published = {port for service in SERVICES.values() for port in service.get("ports", ())}
    gateway, fleet = split_address(settings.gateway.address)[1], split_address(settings.control_plane.grpc)[1]
    assert published == {f"127.0.0.1:{port}:{port}" for port in (gateway, fleet)}


def test_the_configuration_names_the_services_by_the_ports_they_listen_on(settings: Settings) -> None:
    control, ext_proc = settings.control_plane, settings.ext_proc
    listening = {
        "control-plane": {split_address(control.grpc)[1], split_address(control.xds)[1]},
        "etcd": {2379},
        "filter": {split_address(ext_proc.listen)[1]},
    }
    assert control.xds_advertise is not None
    for address in (
        *settings.caller.control_planes,
        control.xds_advertise,
        *ext_proc.advertise,
        *settings.etcd.endpoints,
    ):
        host, port = split_address(address)
        assert host in SERVICES
        assert port in listening[host]


def test_every_part_of_a_gateway_and_an_engine_of_each_format_is_there() -> None:
    parts = {service["command"][0] for service in SERVICES.values()}
    assert {"etcd", "controlplane", "ext-proc", "envoy", "node"} <= parts
    served = [set(service["depends_on"]) & ENGINES for service in SERVICES.values() if service["command"][0] == "node"]
    assert sorted(map(sorted, served)) == [[name] for name in sorted(ENGINES)]


def passes(name: str, *arguments: str) -> bool:
    """Whether a service's own health check, with other arguments after its program text, would call it healthy."""
    test = SERVICES[name]["healthcheck"]["test"]
    assert test[1:3] == ["python", "-c"]
    return succeeds(sys.executable, "-c", test[3], *arguments)


def test_the_check_of_http_services_passes_for_200_alone() -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/ready" else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            assert passes("envoy", f"{url}/ready")
            assert not passes("envoy", f"{url}/starting")
        finally:
            server.shutdown()
            serving.join()
    assert not passes("envoy", f"{url}/ready")


class OneNodeFleet(fleet_pb2_grpc.FleetServicer):
    def __init__(self) -> None:
        self.ready = False

    async def ListNodes(  # noqa: N802 - gRPC's name
        self, request: fleet_pb2.ListNodesRequest, context: object
    ) -> fleet_pb2.ListNodesResponse:
        node = fleet_pb2.Node(spec=node_pb2.NodeSpec(node_id="node-4bit"), ready=self.ready)
        return fleet_pb2.ListNodesResponse(nodes=[node])


async def test_the_checks_of_grpc_services_and_nodes_pass_once_they_are_ready() -> None:
    health, fleet = Health(["headrace.v1.Fleet"]), OneNodeFleet()
    server = new_server(["headrace.v1.Fleet"], health)
    fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server)
    address = bind(server, "127.0.0.1:0")
    await server.start()
    try:
        for ready in (False, True):
            await health.set_ready(ready)
            fleet.ready = ready
            assert await asyncio.to_thread(passes, "control-plane", address) is ready
            assert await asyncio.to_thread(passes, "filter", address) is ready
            assert await asyncio.to_thread(passes, "node-4bit", address, "node-4bit") is ready
        assert not await asyncio.to_thread(passes, "node-4bit", address, "node-16bit")
    finally:
        await server.stop(0)


def test_the_dockerfile_has_no_fault_that_hadolint_knows() -> None:
    run(Path(sys.executable).parent / "hadolint", ROOT / "Dockerfile")


def test_the_image_is_given_what_the_wheel_is_built_from() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    sources = {Path(source).parts[0] for source in (*wheel["packages"], *wheel["force-include"])} - {"generated"}
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sources | {"protos", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE"} <= kept
