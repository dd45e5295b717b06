"""Settings for a system whose parts all run on this machine."""

from __future__ import annotations

import socket
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.config.addresses import dialable, split_address
from controlplane.config.load import load
from controlplane.config.settings import AuthSettings, CallerSettings, ControlPlaneSettings, Settings, TlsSettings
from controlplane.errors import ConfigurationError, HeadraceError
from headrace.credentials import control_planes
from headrace.one_machine import default_workers, fit_to_one_machine, next_port
from support.system import FREE_PORTS


def settings(**control_plane: object) -> Settings:
    base = load(FREE_PORTS, "test")
    return replace(base, control_plane=replace(base.control_plane, **control_plane))  # type: ignore[arg-type]


def test_every_port_0_becomes_a_port_of_its_own(tmp_path: Path) -> None:
    fitted = fit_to_one_machine(settings(), tmp_path)
    control, ext_proc = fitted.control_plane, fitted.ext_proc
    addresses = [
        *(fitted.gateway.address, control.grpc, control.xds, control.metrics, fitted.envoy.admin),
        *(ext_proc.listen, ext_proc.health, ext_proc.metrics),
    ]
    ports = [split_address(address)[1] for address in addresses]
    assert 0 not in ports
    assert len(set(ports)) == len(ports)
    assert [each.address for each in control_planes(fitted)] == [control.grpc]
    assert ext_proc.advertise == (ext_proc.listen,)


@pytest.mark.parametrize("workers", [2, 5])
def test_each_worker_has_a_socket_and_ports_of_its_own(tmp_path: Path, workers: int) -> None:
    base = settings()
    fitted = fit_to_one_machine(replace(base, ext_proc=replace(base.ext_proc, workers=workers)), tmp_path)
    assert fitted.ext_proc.advertise == tuple(f"unix:{tmp_path}/filter-{n}.sock" for n in range(workers))
    taken = Counter(
        next_port(address, step)
        for address in (fitted.ext_proc.health, fitted.ext_proc.metrics)
        for step in range(workers)
    )
    taken.update((fitted.gateway.address, fitted.control_plane.grpc, fitted.control_plane.xds, fitted.envoy.admin))
    assert set(taken.values()) == {1}


@pytest.mark.parametrize(
    ("processors", "shared", "expected"),
    [(0.5, True, 2), (2, True, 2), (5.9, True, 2), (6, True, 3), (64, True, 32), (1024, True, 256), (64, False, 1)],
)
def test_without_a_number_of_workers_processors_and_the_session_store_decide(
    processors: float, shared: bool, expected: int
) -> None:
    assert default_workers(processors, shared=shared) == expected


@pytest.mark.parametrize(("store", "fewest"), [("", 1), (', session_store: {url: "redis://127.0.0.1:6379"}', 2)])
def test_the_parts_are_told_how_many_workers_there_are(tmp_path: Path, store: str, fewest: int) -> None:
    ext_proc = fit_to_one_machine(
        load(FREE_PORTS.replace('"127.0.0.1:0"}\nenvoy', f'"127.0.0.1:0"{store}}}\nenvoy'), "t"), tmp_path
    ).ext_proc
    assert ext_proc.workers == len(ext_proc.advertise)
    assert ext_proc.workers >= fewest
    assert bool(store) or ext_proc.workers == 1


def test_every_address_that_is_taken_is_named_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        taken = [f"127.0.0.1:{server.getsockname()[1]}" for server in (one, other)]
        base = settings(grpc=taken[0])
        with pytest.raises(HeadraceError) as refused:
            fit_to_one_machine(replace(base, gateway=replace(base.gateway, address=taken[1])), tmp_path)
    assert str(refused.value).splitlines()[:2] == [
        f"gateway.address: cannot listen on {taken[1]}: Address already in use",
        f"control_plane.grpc: cannot listen on {taken[0]}: Address already in use",
    ]


def test_the_ports_of_further_workers_are_looked_at_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        base = settings()
        ext_proc = replace(base.ext_proc, workers=2, metrics=f"127.0.0.1:{port - 1}")
        with pytest.raises(HeadraceError, match=f"ext_proc.metrics: cannot listen on 127.0.0.1:{port}: "):
            fit_to_one_machine(replace(base, ext_proc=ext_proc), tmp_path)


def test_the_filters_carry_a_node_token_unless_they_were_given_one(tmp_path: Path) -> None:
    nodes, operators, strange = tmp_path / "nodes", tmp_path / "operators", tmp_path / "strange"
    nodes.write_text("node\n")
    operators.write_text("operator\n")
    strange.write_text("strange\n")
    base = settings(auth=AuthSettings(str(nodes), str(operators)))
    assert fit_to_one_machine(base, tmp_path).caller.token_file == str(nodes)
    own = replace(base, caller=CallerSettings(token_file=str(operators)))
    assert fit_to_one_machine(own, tmp_path).caller.token_file == str(operators)
    with pytest.raises(ConfigurationError, match=r"strange is not one that control_plane\.auth accepts"):
        fit_to_one_machine(replace(base, caller=CallerSettings(token_file=str(strange))), tmp_path)


def test_tls_on_one_side_only_is_refused(tmp_path: Path) -> None:
    tls = TlsSettings("cert", "key", "ca")
    with pytest.raises(ConfigurationError) as refused:
        fit_to_one_machine(settings(tls=tls), tmp_path)
    assert [fault.partition(":")[0] for fault in refused.value.faults] == ["caller.ca_file", "caller.cert_file"]
    with pytest.raises(ConfigurationError, match=r"caller.ca_file: turns TLS on, and control_plane\.tls is off"):
        fit_to_one_machine(replace(settings(), caller=CallerSettings(ca_file="ca")), tmp_path)


@pytest.mark.parametrize(
    ("listened", "dialled"),
    [
        ("0.0.0.0:1", "127.0.0.1:1"),
        ("[::]:1", "[::1]:1"),
        ("10.0.0.7:1", "10.0.0.7:1"),
        ("unix:/run/x", "unix:/run/x"),
    ],
)
def test_what_listens_everywhere_is_dialled_on_loopback(listened: str, dialled: str) -> None:
    assert dialable(listened) == dialled


def test_the_defaults_are_kept() -> None:
    assert next_port("127.0.0.1:9003", 0) == "127.0.0.1:9003"
    assert next_port("[::1]:9003", 2) == "[::1]:9005"
    assert next_port("127.0.0.1:0", 3) == "127.0.0.1:0"
    assert ControlPlaneSettings().grpc == "127.0.0.1:50051"
