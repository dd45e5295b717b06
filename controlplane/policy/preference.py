"""Which format tier is preferred for a request whatever it says, and by whom; and why a wish is not followed."""

from __future__ import annotations

from controlplane.model import Ask, FormatTier, Pin, Pool, Reason
from controlplane.policy.table import RoutingTable


def stated_preference(ask: Ask, table: RoutingTable) -> tuple[FormatTier, Reason] | None:
    """The client's preference where it counts, else its tenant's; None for neither."""
    if ask.preference is not None and _may_prefer(ask.preference, table):
        return ask.preference, Reason.CLIENT_PREFERENCE
    tenant = table.tenants.get(ask.tenant)
    if tenant is None or tenant.prefers is None:
        return None
    return tenant.prefers, Reason.TENANT_PREFERENCE


def disregarded(ask: Ask, table: RoutingTable, pin: Pin | None) -> tuple[Reason, ...]:
    """Why what the client asks for does not count; `pin` is the one that is obeyed, None for none."""
    if ask.preference_unknown:
        return (Reason.PREFERENCE_UNKNOWN,)
    if ask.preference is None:
        return ()
    if not _may_prefer(ask.preference, table):
        return (Reason.PREFERENCE_NOT_ALLOWED,)
    return (Reason.PREFERENCE_PINNED,) if pin is not None and pin.tier is not ask.preference else ()


def as_met(reasons: tuple[Reason, ...], ask: Ask, pool: Pool | None) -> tuple[Reason, ...]:
    """The reasons for a pool, which do not read as if it were of the tier that the client asked for when it is not."""
    if pool is None or pool.tier is ask.preference or Reason.CLIENT_PREFERENCE not in reasons:
        return reasons
    return tuple(Reason.PREFERENCE_NOT_MET if reason is Reason.CLIENT_PREFERENCE else reason for reason in reasons)


def _may_prefer(tier: FormatTier, table: RoutingTable) -> bool:
    return tier in table.policy.tenants.client_may_prefer
