"""Holds requests against the rates that their tenants are allowed, and puts charges right once usage is known.

A store that is away admits everything: rates protect budgets, and must not take the service down. It is counted.
What a request really used comes from Envoy's access log, which knows it by the bill that the filter left there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from controlplane.errors import UnavailableError
from controlplane.model import Decision
from controlplane.policy.rates import (
    WINDOW_SECONDS,
    Charge,
    charges_of,
    correction,
    most_tokens,
    rate_limited,
    told,
)
from controlplane.policy.table import RoutingTable
from ext_proc.debts import DebtStore

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Told what became of requests that a rate holds for: admitted, refused or unchecked; and of corrections: done,
    lost or implausible."""

    def rate_checked(self, outcome: str) -> None: ...

    def rate_corrected(self, outcome: str) -> None: ...


class Bill(Struct, frozen=True, gc=False):
    """What a request was charged with, and the tenant's debts after that, in seconds; empty where no rate holds. It can
    need `most_tokens`."""

    tenant: str = ""
    charges: tuple[Charge, ...] = ()
    debts: tuple[float, ...] = ()
    most_tokens: int = 0

    @property
    def told(self) -> Mapping[str, str]:
        """As `rates.told`."""
        return told(self.charges, self.debts)

    @property
    def note(self) -> str:
        """What the access log brings back to `RateLimits.used`; empty when no tokens are charged."""
        for charge in self.charges:
            if charge.of == "tokens":
                return f"{charge.amount} {charge.per_minute} {self.most_tokens} {self.tenant}"
        return ""


NO_BILL = Bill()


class RateLimits:
    def __init__(self, store: DebtStore, observer: Observer) -> None:
        self._store = store
        self._observer = observer
        self._is_away = False

    async def charge(self, decision: Decision, table: RoutingTable) -> tuple[Decision, Bill]:
        """The decision, or that to refuse the request with 429; and what it was charged with, or would have been."""
        charges = charges_of(decision, *table.rates_of(decision.tenant))
        if not charges:
            return decision, NO_BILL
        try:
            admission = await self._store.charge(decision.tenant, charges)
        except UnavailableError as error:
            self._observer.rate_checked("unchecked")
            if not self._is_away:
                self._is_away = True
                _log.error("rates are not checked, all requests are admitted: %s", error)
            return decision, NO_BILL
        self._is_away = False
        bill = Bill(decision.tenant, charges, admission.debts, most_tokens(decision, table.largest_context))
        if admission.admitted:
            self._observer.rate_checked("admitted")
            return decision, bill
        self._observer.rate_checked("refused")
        return rate_limited(decision, charges, admission.debts), bill

    def give_back(self, bill: Bill) -> None:
        """Of a request that was admitted and then not sent."""
        for charge in bill.charges:
            self._correct(bill.tenant, charge.of, -charge.seconds)

    def used(self, note: str, tokens: int | None, *, failed: bool) -> None:
        """What became of a request with that note: the tokens by the engine's count, None when it did not say.

        A count that no engine can have reached is taken for none: it would be a debt of days.
        """
        try:
            charged, per_minute, most, tenant = note.split(" ", 3)
            if tokens is not None and tokens > int(most):
                self._observer.rate_corrected("implausible")
                tokens = None
            more = correction(int(charged), tokens, failed=failed)
            seconds = more * WINDOW_SECONDS / int(per_minute)
        except (ValueError, ZeroDivisionError):  # as of another version
            return
        if more:
            self._correct(tenant, "tokens", seconds)

    def _correct(self, tenant: str, of: str, seconds: float) -> None:
        self._observer.rate_corrected("done" if self._store.correct(tenant, of, seconds) else "lost")
