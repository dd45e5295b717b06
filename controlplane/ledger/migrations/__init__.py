"""The ledger's tables as numbered SQL, one folder for each kind of database. A file that was released never changes."""

from __future__ import annotations

from importlib import resources
from typing import NamedTuple


class Migration(NamedTuple):
    number: int
    name: str
    sql: str


def migrations(kind: str) -> tuple[Migration, ...]:
    """All of them in order. `kind` is the folder, `sqlite` or `postgresql`."""
    folder = resources.files(__name__).joinpath(kind)
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(
        Migration(int(file.name.partition("_")[0]), file.name, file.read_text(encoding="utf-8")) for file in files
    )


def newer_than_known(kind: str, version: int) -> str:
    """What is said of a database that a newer Headrace has migrated."""
    return (
        f"its tables are of version {version}, and this Headrace knows them up to {migrations(kind)[-1].number}; "
        "a newer one has migrated it: upgrade this one, or give it a ledger of its own"
    )
