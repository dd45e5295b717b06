"""Which format tier is preferred for a request whatever it says, and by whom; and why a wish is not followed."""

from __future__ import annotations

from controlplane.model import FormatTier, Pool, Reason


def stated_preference(
    asked: FormatTier | None, of_tenant: FormatTier | None, may_prefer: tuple[FormatTier, ...]
) -> tuple[FormatTier, Reason] | None:
    """What the client asks for, where it may ask for it, else its tenant's preference; None for neither."""
    if asked is not None and asked in may_prefer:
        return asked, Reason.CLIENT_PREFERENCE
    return None if of_tenant is None else (of_tenant, Reason.TENANT_PREFERENCE)


def disregarded(
    asked: FormatTier | None, may_prefer: tuple[FormatTier, ...], pinned: FormatTier | None, *, unknown: bool
) -> tuple[Reason, ...]:
    """Why what the client asks for does not count; `pinned` is the tier that its session is kept in, None for none."""
    if unknown:
        return (Reason.PREFERENCE_UNKNOWN,)
    if asked is None:
        return ()
    if asked not in may_prefer:
        return (Reason.PREFERENCE_NOT_ALLOWED,)
    return (Reason.PREFERENCE_PINNED,) if pinned is not None and pinned is not asked else ()


def as_met(reasons: tuple[Reason, ...], asked: FormatTier | None, pool: Pool | None) -> tuple[Reason, ...]:
    """The reasons for a pool, which do not read as if it were of the tier that the client asked for when it is not."""
    if pool is None or pool.tier is asked or Reason.CLIENT_PREFERENCE not in reasons:
        return reasons
    return tuple(Reason.PREFERENCE_NOT_MET if reason is Reason.CLIENT_PREFERENCE else reason for reason in reasons)
