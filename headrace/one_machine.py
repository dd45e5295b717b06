"""Settings as a system needs them whose parts all run on this machine: with ports, sockets and credentials filled in.

Nothing is started here.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from controlplane.config.addresses import dialable, joined_address, split_address, unix_path
from controlplane.config.settings import CallerSettings, Settings
from controlplane.errors import ConfigurationError, HeadraceError, UnavailableError
from controlplane.etcd.server import free_ports
from headrace.credentials import read_tokens
from headrace.processors import available_processors

# Where a run of free ports may begin; a few are enough, as hardly any port is taken.
CANDIDATES = 50
FEWEST_SHARING = 2  # workers, so that one may die and nobody notices
MOST_WORKERS = 256
LEDGER_FILE = "ledger.sqlite"


def fit_to_one_machine(settings: Settings, state_dir: Path) -> Settings:
    """Free ports in place of port 0, so that a part that is started again comes back at the same address; how many
    filter workers, with a socket for each; and what they need to call the control plane.

    Raises ConfigurationError when they cannot call it, HeadraceError naming each address that is taken.
    """
    ext_proc = settings.ext_proc
    workers = ext_proc.workers or default_workers(available_processors(), shared=ext_proc.session_store.url is not None)
    settings = replace(
        settings,
        caller=replace(_caller(settings), control_planes=()),
        ext_proc=replace(ext_proc, workers=workers),
    )
    settings = _with_addresses(settings, state_dir, workers)
    taken = [
        f"{setting}: cannot listen on {address}: {fault}"
        for setting, address in _listening(settings, workers)
        if (fault := _fault_of_listening(address))
    ]
    if taken:
        raise HeadraceError(
            "\n".join([*taken, "end what listens there, or choose other addresses in the configuration"])
        )
    return settings


def default_workers(processors: float, *, shared: bool) -> int:
    """For so many processors: one without a shared session store, as each would keep sessions for itself. Of several,
    half as many as processors, since Envoy and the control plane need as much for a request as the filter does."""
    return min(max(FEWEST_SHARING, int(processors / 2)), MOST_WORKERS) if shared else 1


def next_port(address: str, steps: int) -> str:
    """The address `steps` ports further, which is what the further filter workers have; port 0 stays."""
    host, port = split_address(address)
    return joined_address(host, port + steps if port else 0)


def _caller(settings: Settings) -> CallerSettings:
    auth, tls, caller = settings.control_plane.auth, settings.control_plane.tls, settings.caller
    faults = []
    if tls.cert_file is not None and caller.ca_file is None:
        faults.append("caller.ca_file: control_plane.tls is on; name the authority that signed its certificate")
    if tls.cert_file is None and caller.ca_file is not None:
        faults.append("caller.ca_file: turns TLS on, and control_plane.tls is off; remove it, or give the certificate")
    if tls.client_ca_file is not None and caller.cert_file is None:
        faults.append("caller.cert_file: control_plane.tls.client_ca_file asks for one; name the filter's certificate")
    nodes = read_tokens("control_plane.auth.node_tokens_file", auth.node_tokens_file)
    if nodes and caller.token_file is None:
        caller = replace(caller, token_file=auth.node_tokens_file)
    elif nodes:
        accepted = nodes + read_tokens("control_plane.auth.operator_tokens_file", auth.operator_tokens_file)
        if read_tokens("caller.token_file", caller.token_file)[0] not in accepted:
            faults.append(
                f"caller.token_file: the first token of {caller.token_file} is not one that control_plane.auth accepts"
            )
    if faults:
        raise ConfigurationError(faults)
    return caller


def _with_addresses(settings: Settings, state_dir: Path, workers: int) -> Settings:
    ports = _FreePorts(port for _, address in _listening(settings, workers) if (port := _port(address)))

    def fixed(address: str, count: int = 1) -> str:
        if unix_path(address) is not None or _port(address):
            return address
        host, _ = split_address(address)
        return joined_address(host, ports.take(host, count))

    listen = fixed(settings.ext_proc.listen)
    sockets = tuple(f"unix:{state_dir.resolve()}/filter-{n}.sock" for n in range(workers))
    control_plane = replace(
        settings.control_plane,
        grpc=fixed(settings.control_plane.grpc),
        xds=fixed(settings.control_plane.xds),
        metrics=fixed(settings.control_plane.metrics),
    )
    ledger = settings.ledger
    if ledger.url is None:
        ledger = replace(ledger, url=f"sqlite:///{state_dir.resolve()}/{LEDGER_FILE}")
    return replace(
        settings,
        ledger=ledger,
        gateway=replace(settings.gateway, address=fixed(settings.gateway.address)),
        control_plane=control_plane,
        ext_proc=replace(
            settings.ext_proc,
            listen=listen,
            health=fixed(settings.ext_proc.health, workers),
            metrics=fixed(settings.ext_proc.metrics, workers),
            advertise=(dialable(listen),) if workers == 1 else sockets,
        ),
        envoy=replace(settings.envoy, admin=fixed(settings.envoy.admin)),
    )


def _listening(settings: Settings, workers: int) -> Iterator[tuple[str, str]]:
    """Every TCP address that a part listens on, with the setting it comes from."""
    control, ext_proc = settings.control_plane, settings.ext_proc
    yield "gateway.address", settings.gateway.address
    yield "control_plane.grpc", control.grpc
    yield "control_plane.xds", control.xds
    yield "control_plane.metrics", control.metrics
    yield "envoy.admin", settings.envoy.admin
    if workers == 1 and unix_path(ext_proc.listen) is None:
        yield "ext_proc.listen", ext_proc.listen
    for worker in range(workers):
        yield "ext_proc.health", next_port(ext_proc.health, worker)
        yield "ext_proc.metrics", next_port(ext_proc.metrics, worker)


class _FreePorts:
    """Gives each free port once. `reserved` are ports that are not to be given."""

    def __init__(self, reserved: Iterator[int]) -> None:
        self._given = set(reserved)

    def take(self, host: str, count: int) -> int:
        """The first of `count` free ports in a row."""
        for first in free_ports(CANDIDATES):
            run = range(first, first + count)
            if self._given.isdisjoint(run) and not any(_fault_of_listening(joined_address(host, port)) for port in run):
                self._given.update(run)
                return first
        raise UnavailableError(f"found no {count} free ports in a row; name them in the configuration")


def _fault_of_listening(address: str) -> str | None:
    """What keeps a program from listening there now. Unlike Envoy and gRPC, does not share a port with another."""
    host, port = split_address(address)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as error:
            return error.strerror or str(error)
    return None


def _port(address: str) -> int:
    return 0 if unix_path(address) is not None else split_address(address)[1]
