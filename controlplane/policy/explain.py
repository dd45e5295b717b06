"""Says what would have led to another decision, by deciding again about requests that differ in one thing.

Costs several decisions, so that it is kept off the requests' path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from msgspec import structs

from controlplane.model import Action, Ask, Decision, FormatTier, HttpRequest, Pin, Pressure, Reason, Refusal
from controlplane.policy.access import identify
from controlplane.policy.ask import endpoint_of, parse
from controlplane.policy.budget import sequence_tokens
from controlplane.policy.choice import Free
from controlplane.policy.decide import anywhere, decide, refused
from controlplane.policy.select import CONTEXT_TOO_SMALL
from controlplane.policy.table import RoutingTable, compile_table, without_loads


def explain_request(
    request: HttpRequest, table: RoutingTable, free: Free = anywhere, pinned: FormatTier | None = None
) -> Decision:
    """The decision about a request, as the filter would make it, with what would change it.

    `pinned` is what its session keeps to, as one that began before all nodes; None for a new one. API keys are not
    checked, since only the filter has their secret.
    """
    identity = identify(request.headers, table, None)
    if isinstance(identity, Refusal):
        reason = Reason.UNAUTHENTICATED
        return refused(identity, reason, endpoint=endpoint_of(request.method, request.path))
    ask = parse(request, table.policy, identity.tenant, identity.known_by)
    if isinstance(ask, Refusal):
        return refused(ask, Reason.BAD_REQUEST, endpoint=endpoint_of(request.method, request.path))
    return explain(ask, table, None if pinned is None else Pin(pinned), free)


def explain(ask: Ask, table: RoutingTable, pin: Pin | None, free: Free = anywhere) -> Decision:
    """The decision about a request, with what would change it."""
    decision = decide(ask, table, pin, free)
    return structs.replace(decision, would_change=would_change(ask, table, pin, decision, free))


def would_change(
    ask: Ask, table: RoutingTable, pin: Pin | None, decision: Decision, free: Free = anywhere
) -> tuple[str, ...]:
    """Sentences, each naming one change and what it would do; empty for a request that is not classified."""
    if decision.sensitivity is None:
        return ()
    return (
        *_another_temperature(ask, table, pin, decision, free),
        *_fewer_tokens(ask, table, decision),
        *_another_gain(ask, table, pin, decision, free),
        *_no_load(ask, table, pin, decision),
        *_no_pin(ask, table, pin, decision, free),
        *_a_pin(ask, table, pin, decision, free),
        *_no_pressure(ask, table, pin, decision, free),
    )


def _another_temperature(
    ask: Ask, table: RoutingTable, pin: Pin | None, decision: Decision, free: Free
) -> Iterator[str]:
    rules = table.policy.sensitivity
    hot = rules.hot_temperature
    tried = (("temperature 0", 0.0), (f"temperature {hot:g}", hot), (f"temperature above {hot:g}", hot + 0.1))
    told = {decision.sensitivity.verdict} if decision.sensitivity else set()
    for words, temperature in tried:
        other = decide(structs.replace(ask, temperature=temperature), table, pin, free)
        if other.sensitivity and other.sensitivity.verdict not in told:
            told.add(other.sensitivity.verdict)
            yield f"{words} would make it {other.sensitivity.verdict.value}{_and_send(decision, other)}"


def _fewer_tokens(ask: Ask, table: RoutingTable, decision: Decision) -> Iterator[str]:
    budget = decision.budget
    if budget is None or decision.pool is None:
        return
    tokens = sequence_tokens(budget, ask.choices)
    too_small = {a.pool for a in decision.alternatives if a.excluded_by == CONTEXT_TOO_SMALL}
    pools = [pool for pool in table.pools if pool.name in too_small]
    if Reason.EXCEEDS_EVERY_CONTEXT in decision.reasons:
        pools.append(decision.pool)
    for pool in pools:
        excess = tokens - pool.max_context
        if excess > 0:
            kind = "output" if excess < tokens - budget.prompt_tokens else "prompt"
            yield f"{excess} fewer {kind} tokens would fit {pool.name} ({pool.max_context} tokens)"


def _another_gain(ask: Ask, table: RoutingTable, pin: Pin | None, decision: Decision, free: Free) -> Iterator[str]:
    """Only of a tolerant request that was free to go to either tier."""
    least = table.policy.gain.worthwhile
    if Reason.TOLERANT_GAINS_TOO_LITTLE in decision.reasons:
        gain, says = least, f"a gain of {least:g} by quantized formats"
    elif Reason.TOLERANT_PREFERS_QUANTIZED in decision.reasons:
        gain, says = 0.0, f"a gain below {least:g} by quantized formats"
    else:
        return
    quantized = [pool for pool in table.pools if pool.model == decision.model and pool.tier is FormatTier.QUANTIZED]
    others = (replace(pool, gain=gain) if pool in quantized else pool for pool in table.pools)
    other = decide(ask, compile_table(table.version, others, table.policy, table.calibrations), pin, free)
    if _target(other) != _target(decision):
        expected = ", ".join(f"{pool.gain:g} in {pool.name}" for pool in quantized)
        yield f"{says} would send it to {_target(other)}; expected are {expected}"


def _no_load(ask: Ask, table: RoutingTable, pin: Pin | None, decision: Decision) -> Iterator[str]:
    if all(pool.load is None for pool in table.pools):
        return
    other = decide(ask, without_loads(table), pin)
    if decision.action is Action.QUEUE:
        yield f"with room it would go to {_target(other)}"
    if other.pool and decision.pool and other.pool.name != decision.pool.name:
        yield f"without load it would go to {other.pool.name}"


def _no_pin(ask: Ask, table: RoutingTable, pin: Pin | None, decision: Decision, free: Free) -> Iterator[str]:
    if pin is None:
        return
    other = decide(ask, table, None, free)
    if _target(other) != _target(decision):
        yield f"as a new session it would go to {_target(other)}"


def _a_pin(ask: Ask, table: RoutingTable, pin: Pin | None, decision: Decision, free: Free) -> Iterator[str]:
    """Where pins are kept is not known here, so that a request of a session is taken for its first."""
    if pin is not None or ask.session is None:
        return
    others = ((tier, decide(ask, table, Pin(tier), free)) for tier in FormatTier)
    changes = [f"{_target(other)} if pinned to {tier.value}" for tier, other in others if _differs(decision, other)]
    told = (
        f"; it would go to {' and to '.join(changes)}, see --pinned" if changes else ", and a pin would change nothing"
    )
    yield f"sessions are not looked up: this is decided as the first request of its session{told}"


def _no_pressure(ask: Ask, table: RoutingTable, pin: Pin | None, decision: Decision, free: Free) -> Iterator[str]:
    if decision.pressure is None or decision.pressure.pressure is Pressure.NORMAL:
        return
    calm = compile_table(
        table.version, (replace(pool, pressures=()) for pool in table.pools), table.policy, table.calibrations
    )
    other = decide(ask, calm, pin, free)
    if _differs(decision, other):
        yield f"without pressure it would be {other.action.value} and go to {_target(other)}"


def _and_send(decision: Decision, other: Decision) -> str:
    return f" and send it to {_target(other)}" if _target(other) != _target(decision) else ""


def _differs(decision: Decision, other: Decision) -> bool:
    return (decision.action, _target(decision)) != (other.action, _target(other))


def _target(decision: Decision) -> str:
    """Where a request goes; where one that has to wait would go first."""
    if decision.waits_for:
        return decision.waits_for[0]
    return decision.pool.name if decision.pool else "no pool"
