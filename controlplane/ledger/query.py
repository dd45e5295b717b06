"""Which decisions are asked for. The stores answer the same question in SQL; `matches` says what it means."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.ledger.row import Row


@dataclass(frozen=True, slots=True)
class DecisionQuery:
    """All that is given must hold; an empty text, 0 and None ask for nothing.

    `reason` is one of the row's, `misroute` what was judged of its context class. `since` and `until` are in Unix
    microseconds, by when rows were recorded, `until` exclusive. `errors_only` asks for requests that got no answer, or
    one with a status of 400 or more.
    """

    model: str = ""
    pool: str = ""
    tier: str = ""
    tenant: str = ""
    verdict: str = ""
    reason: str = ""
    misroute: str = ""
    session: str = ""
    request_id: str = ""
    status_from: int = 0
    status_to: int = 0
    since: int | None = None
    until: int | None = None
    errors_only: bool = False

    def matches(self, row: Row) -> bool:
        return (
            (not self.model or self.model == row.model)
            and (not self.pool or self.pool == row.pool)
            and (not self.tier or self.tier == row.tier)
            and (not self.tenant or self.tenant == row.tenant)
            and (not self.verdict or self.verdict == row.verdict)
            and (not self.reason or self.reason in row.reasons)
            and (not self.misroute or self.misroute == row.misroute)
            and (not self.session or self.session == row.session)
            and (not self.request_id or self.request_id == row.request_id)
            and (not self.status_from or self.status_from <= row.status)
            and (not self.status_to or self.status_to >= row.status)
            and (self.since is None or self.since <= row.recorded)
            and (self.until is None or self.until > row.recorded)
            and (not self.errors_only or not 0 < row.status < 400)
        )
