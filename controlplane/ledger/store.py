"""What keeps the ledger: the interface of `sqlite_store` and `postgresql_store`, and how they fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from controlplane.errors import HeadraceError, UnavailableError
from controlplane.ledger.query import DecisionQuery
from controlplane.ledger.row import Row

MINUTE = 60_000_000  # in microseconds


class StoreAwayError(UnavailableError):
    """The database cannot be reached or does not work now; what was asked may be asked again."""


class RowsRefusedError(HeadraceError):
    """The database took none of these rows for what one of them holds; it would refuse them again."""


class Loss(NamedTuple):
    """Decisions that never reached the ledger, between two times in Unix microseconds."""

    began: int
    ended: int
    recorder: int
    cause: str
    decisions: int


class Tally(NamedTuple):
    """What became of the decisions that a filter worker made in a Unix minute, as one control plane knows: it was told
    that `made` were, has written `written`, and lost `lost`, which it told as Loss. Counts only grow."""

    minute: int
    worker: str
    recorder: int
    made: int
    written: int
    lost: int


class Shortfall(NamedTuple):
    """More decisions were made by a filter worker in a Unix minute than were written, or told to be lost."""

    minute: int
    worker: str
    decisions: int


class Found(NamedTuple):
    """A row that was found: its key, and its message encoded."""

    recorded: int
    recorder: int
    message: bytes


class LedgerStore(Protocol):
    """Every method raises StoreAwayError, after a few seconds at most."""

    @property
    def place(self) -> str:
        """Where it is, for people; without credentials."""

    async def write(self, rows: Sequence[Row], losses: Sequence[Loss], tallies: Sequence[Tally] = ()) -> None:
        """All or nothing; a row that is there already stays as it is, a tally becomes what it says. Raises
        RowsRefusedError."""

    async def find(self, query: DecisionQuery, limit: int) -> list[Found]:
        """At most `limit` rows, those last recorded first."""

    async def losses(self, since: int | None, until: int | None) -> list[Loss]:
        """What was lost between these times, in Unix microseconds, the last first; a thousand at most."""

    async def shortfalls(self, since: int, until: int | None) -> list[Shortfall]:
        """Of the minutes from `since` on and before `until`, in Unix minutes, by all control planes' tallies."""

    async def expire(self, before: int) -> bool:
        """Removes some of what was recorded before, in Unix microseconds; whether there may be more to remove."""

    async def close(self) -> None: ...
