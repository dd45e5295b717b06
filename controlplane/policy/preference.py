"""Which format tier is preferred for a request whatever it says, and by whom."""

from __future__ import annotations

from controlplane.model import Ask, FormatTier, Reason
from controlplane.policy.settings import TenantRules


def stated_preference(ask: Ask, rules: TenantRules) -> tuple[FormatTier, Reason] | None:
    """The client's preference where it counts, else its tenant's; None for neither."""
    if ask.preference is not None and ask.preference in rules.client_may_prefer:
        return ask.preference, Reason.CLIENT_PREFERENCE
    for entry in rules.formats:
        if ask.tenant == tenant_of_name(entry.tenant):
            return entry.prefers, Reason.TENANT_PREFERENCE
    return None


def tenant_of_name(name: str) -> str:
    """How the tenant is told apart that the configured header names; no credential's digest looks like it."""
    return f"name:{name}"
