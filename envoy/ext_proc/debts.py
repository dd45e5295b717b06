"""What tenants have used of their rates, in the memory of one filter worker; `redis_debts` keeps it for several."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from controlplane.policy.rates import Admission, Charge, admit

MOST_DEBTS = 100_000


class DebtStore(Protocol):
    """Keeps debts by tenant, as in Ask, and by what is owed; time pays them off."""

    async def charge(self, tenant: str, charges: tuple[Charge, ...]) -> Admission:
        """Makes all of the charges at once if they are admitted, else none. Raises UnavailableError when it is away."""

    def correct(self, tenant: str, of: str, seconds: float) -> bool:
        """Makes a debt greater, or less for what is below 0, whatever it is; whether the store took notice."""


class MemoryDebts:
    """`clock` gives monotonic seconds. When there are too many debts, the oldest are forgotten."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # When each debt is paid off.
        self._paid_at: OrderedDict[tuple[str, str], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paid_at)

    async def charge(self, tenant: str, charges: tuple[Charge, ...]) -> Admission:
        now = self._clock()
        admission = admit(tuple(self._debt(tenant, charge.of, now) for charge in charges), charges)
        if admission.admitted:
            for charge, debt in zip(charges, admission.debts, strict=True):
                self._keep(tenant, charge.of, debt, now)
        return admission

    def correct(self, tenant: str, of: str, seconds: float) -> bool:
        now = self._clock()
        self._keep(tenant, of, self._debt(tenant, of, now) + seconds, now)
        return True

    def _debt(self, tenant: str, of: str, now: float) -> float:
        return max(0.0, self._paid_at.get((tenant, of), now) - now)

    def _keep(self, tenant: str, of: str, debt: float, now: float) -> None:
        self._paid_at[tenant, of] = now + debt
        self._paid_at.move_to_end((tenant, of))
        while self._paid_at and (len(self._paid_at) > MOST_DEBTS or next(iter(self._paid_at.values())) <= now):
            self._paid_at.popitem(last=False)
