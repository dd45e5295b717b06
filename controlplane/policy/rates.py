"""Token and request rates of tenants: what each is allowed, and the arithmetic of using it up.

The generic cell rate algorithm: what a tenant has used is a debt in seconds, which time pays off by itself. All of a
minute's allowance may be used at once, so the debt that admission leaves is at most WINDOW_SECONDS. It may exceed that,
or fall, when a request turns out to have used more, or less, than it was charged with.

Pure: whoever keeps debts knows the time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct, structs

from controlplane.model import Action, Decision, Reason, Refusal

WINDOW_SECONDS = 60.0


class Charge(Struct, frozen=True, gc=False):
    """`amount` of what a tenant is allowed `per_minute`. `of` names it: `requests` or `tokens`."""

    of: str
    per_minute: int
    amount: int

    @property
    def seconds(self) -> float:
        """The debt that it makes."""
        return self.amount * WINDOW_SECONDS / self.per_minute


class Admission(Struct, frozen=True, gc=False):
    """Whether a request was admitted, and the debts in seconds: what they are now by its charges, in their order."""

    admitted: bool
    debts: tuple[float, ...]


def admit(debts: tuple[float, ...], charges: tuple[Charge, ...]) -> Admission:
    """All charges are made, or none. `debts` are as they are before, none below 0."""
    after = tuple(debt + charge.seconds for debt, charge in zip(debts, charges, strict=True))
    if all(debt <= WINDOW_SECONDS for debt in after):
        return Admission(True, after)
    return Admission(False, debts)


def charges_of(
    decision: Decision, requests_per_minute: int | None, tokens_per_minute: int | None
) -> tuple[Charge, ...]:
    """What a request is charged with before it is sent: one request, and the tokens that it is expected to need."""
    tokens = decision.budget.total if decision.budget is not None else 0
    charges = []
    if requests_per_minute is not None:
        charges.append(Charge("requests", requests_per_minute, 1))
    if tokens_per_minute is not None:
        charges.append(Charge("tokens", tokens_per_minute, tokens))
    return tuple(charges)


def most_tokens(decision: Decision, largest_context: int) -> int:
    """No engine needs more for a request, each choice being a sequence."""
    return largest_context * decision.choices


def correction(charged: int, used: int | None, *, failed: bool) -> int:
    """The tokens by which a charge was too low, below 0 where it was too high. What nobody counted stays as charged,
    unless the answer was an error: then no tokens were made."""
    if used is not None:
        return used - charged
    return -charged if failed else 0


def rate_limited(decision: Decision, charges: tuple[Charge, ...], debts: tuple[float, ...]) -> Decision:
    """The decision to refuse a request that was not admitted."""
    over = [
        (charge, debt) for charge, debt in zip(charges, debts, strict=True) if debt + charge.seconds > WINDOW_SECONDS
    ]
    charge, debt = max(over, key=lambda pair: pair[0].seconds + pair[1])
    wait = debt + charge.seconds - WINDOW_SECONDS
    if charge.amount > charge.per_minute:
        message = (
            f"The request needs {charge.amount} {charge.of}, more than the {charge.per_minute} per minute that are "
            "allowed at all. Shorten it or its output."
        )
        retry_after = None
    else:
        message = (
            f"Rate limit reached: {charge.per_minute} {charge.of} per minute are allowed, and this request needs "
            f"{charge.amount} when {remaining(charge, debt)} are left. Try again in {spelled(wait)}."
        )
        retry_after = wait
    return structs.replace(
        decision,
        action=Action.REJECT,
        reasons=(Reason.RATE_LIMITED, *decision.reasons),
        pool=None,
        cluster="",
        waits_for=(),
        output_limit=None,
        asked_model="",
        refusal=Refusal(429, charge.of, "rate_limit_exceeded", message, retry_after=retry_after),
    )


def remaining(charge: Charge, debt: float) -> int:
    """What is left of the allowance, rounded down."""
    return max(0, math.floor((WINDOW_SECONDS - debt) * charge.per_minute / WINDOW_SECONDS + 1e-6))


def told(charges: tuple[Charge, ...], debts: tuple[float, ...]) -> Mapping[str, str]:
    """What response headers tell, by the names after `x-ratelimit-`.

    https://platform.openai.com/docs/guides/rate-limits#rate-limits-in-headers
    """
    found = {}
    for charge, debt in zip(charges, debts, strict=True):
        found[f"limit-{charge.of}"] = str(charge.per_minute)
        found[f"remaining-{charge.of}"] = str(remaining(charge, debt))
        found[f"reset-{charge.of}"] = spelled(debt)
    return found


def spelled(seconds: float) -> str:
    """As OpenAI writes it: 250ms, 1.5s, 6m0s."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    text = f"{rest / 1000:g}s"
    return f"{minutes}m{text}" if minutes else text
