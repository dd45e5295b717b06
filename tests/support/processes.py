"""Looking at processes by /proc."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def is_running(pid: int) -> bool:
    """A process that has ended stays a zombie until its parent looks after it."""
    return any(found == pid for found, _, _ in _processes())


def descendants(root: int) -> dict[int, list[str]]:
    """The names and command lines of all that `root` started, and of what those started, by process id."""
    processes = list(_processes())
    found: dict[int, list[str]] = {}
    parents = {root}
    while parents:
        children = {pid: argv for pid, parent, argv in processes if parent in parents}
        found |= children
        parents = set(children)
    return found


def _processes() -> Iterator[tuple[int, int, list[str]]]:
    """Process id, parent, and name and command line of each."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                argv = words_of(folder)
            except OSError:
                continue  # it has ended meanwhile
            if state != "Z":
                yield int(folder.name), int(parent), argv


def words_of(folder: Path) -> list[str]:
    """A process's name and command line, by its folder in /proc. One that was forked has its name from what it does."""
    name = (folder / "comm").read_text().split()
    return [*name, *(folder / "cmdline").read_bytes().decode(errors="replace").split("\0")]
