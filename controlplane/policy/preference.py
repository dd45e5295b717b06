"""Which format tier is preferred for a request whatever it says, and by whom."""

from __future__ import annotations

from controlplane.model import Ask, FormatTier, Reason
from controlplane.policy.table import RoutingTable


def stated_preference(ask: Ask, table: RoutingTable) -> tuple[FormatTier, Reason] | None:
    """The client's preference where it counts, else its tenant's; None for neither."""
    if ask.preference is not None and ask.preference in table.policy.tenants.client_may_prefer:
        return ask.preference, Reason.CLIENT_PREFERENCE
    tenant = table.tenants.get(ask.tenant)
    if tenant is None or tenant.prefers is None:
        return None
    return tenant.prefers, Reason.TENANT_PREFERENCE
