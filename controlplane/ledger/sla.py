"""Watches whether the QoS tiers get what they are promised: the rate of violations over a sliding window, per pool.

What a request's end says is `policy.sla`'s to judge. No I/O, no logging; the clock is passed in.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from controlplane.ledger.ended import Ended
from controlplane.model import Endpoint, QosTier
from controlplane.policy.sla import Cause, Finished, Judged, Judgement, SlaRules, judge

# What happened within so many seconds leaves the window together.
SLOT_SECONDS = 1.0
# In the place of a pool's name: all that is known of the tier, also of requests that no pool was found for.
FLEET = ""

# Envoy's own words for why it ended a request or an answer.
_LEFT = frozenset({"downstream_connection_termination", "downstream_remote_reset"})
_TIMED_OUT = frozenset(
    {"upstream_request_timeout", "stream_idle_timeout", "duration_timeout", "upstream_max_stream_duration_reached"}
)
_CUT_SHORT = frozenset(
    {"upstream_connection_termination", "upstream_remote_reset", "upstream_protocol_error", "local_reset"}
)

_ENDPOINTS = {str(endpoint): endpoint for endpoint in Endpoint}
_TIERS = {str(tier): tier for tier in QosTier}

PoolAndTier: TypeAlias = tuple[str, QosTier]


@dataclass(frozen=True, slots=True)
class SlaRate:
    """Requests of a tier that ended within the window. `rate` is that of violations, 0 to 1; None is missing.

    `causes` says of those that violated the target, and of those that do not count, why.
    """

    rate: float | None
    met: int = 0
    violated: int = 0
    rejected: int = 0
    not_counted: int = 0
    causes: tuple[tuple[Cause, int], ...] = ()


# All that can be judged; counts are lists in this order.
_KINDS = (
    Judged(Judgement.MET),
    Judged(Judgement.REJECTED),
    *(
        Judged(Judgement.VIOLATED, cause)
        for cause in (Cause.FIRST_TOKEN, Cause.OUTPUT_TOKENS, Cause.WHOLE, Cause.TIMED_OUT, Cause.FAILED)
    ),
    *(
        Judged(Judgement.NOT_COUNTED, cause)
        for cause in (Cause.CLIENT_ERROR, Cause.CLIENT_LEFT, Cause.NOT_GENERATED, Cause.NOT_MEASURED)
    ),
)
_PLACES = {judged: place for place, judged in enumerate(_KINDS)}


@dataclass(slots=True)
class _Tally:
    counts: list[int] = field(default_factory=lambda: [0] * len(_KINDS))
    last_counted: float = float("-inf")


class SlaWatch:
    """`rules` gives those in force; `clock` gives seconds that never go back.

    Each control plane judges by the requests of the Envoys that log to it: a sample of what the same pools do for all.
    """

    def __init__(self, rules: Callable[[], SlaRules], clock: Callable[[], float]) -> None:
        self._rules = rules
        self._clock = clock
        self._pools: frozenset[str] = frozenset()
        self._slots: deque[tuple[float, dict[PoolAndTier, list[int]]]] = deque()
        self._tallies: dict[PoolAndTier, _Tally] = {}

    def pools_published(self, names: Iterable[str]) -> None:
        """Only these are told apart: anybody who reaches the xDS port can send a name."""
        self._pools = frozenset(names)

    def request_finished(self, ended: Ended) -> Judged | None:
        """What is judged of it; None of a request that no filter decided about, or whose tier is not known."""
        tier = _TIERS.get(ended.decision.qos_tier)
        if tier is None:
            return None
        judged = judge(finished(ended), self._rules().of(tier))
        place, counts = _PLACES[judged], judged.judgement in _COUNTED
        now = self._clock()
        slot = self._slot(now)
        pool = ended.decision.pool
        for name in (FLEET, pool) if pool in self._pools else (FLEET,):
            key = (name, tier)
            tally = self._tallies.get(key)
            if tally is None:
                tally = self._tallies[key] = _Tally()
            counted = slot.get(key)
            if counted is None:
                counted = slot[key] = [0] * len(_KINDS)
            counted[place] += 1
            tally.counts[place] += 1
            if counts:
                tally.last_counted = now
        return judged

    def rates(self, now: float) -> Mapping[PoolAndTier, SlaRate]:
        """Of each pool (FLEET for all together) and tier with requests in the window. `now` is by the same clock."""
        self._let_go(now)
        rules = self._rules()
        return {key: _rate(tally, rules, now) for key, tally in self._tallies.items()}

    def _slot(self, now: float) -> dict[PoolAndTier, list[int]]:
        start = now // SLOT_SECONDS * SLOT_SECONDS
        if not self._slots or self._slots[-1][0] != start:
            self._let_go(now)
            self._slots.append((start, {}))
        return self._slots[-1][1]

    def _let_go(self, now: float) -> None:
        before = now - self._rules().window_seconds
        while self._slots and self._slots[0][0] + SLOT_SECONDS <= before:
            for key, counted in self._slots.popleft()[1].items():
                tally = self._tallies[key]
                tally.counts = [count - gone for count, gone in zip(tally.counts, counted, strict=True)]
                if not any(tally.counts):
                    del self._tallies[key]


_COUNTED = frozenset({Judgement.MET, Judgement.VIOLATED})


def finished(ended: Ended) -> Finished:
    """What there is to judge. How long a client takes to send its request is left out, and how slowly it reads."""
    decision, outcome, flags = ended.decision, ended.outcome, ended.outcome.flags
    received = outcome.received_seconds or 0.0  # when it never was whole
    left = outcome.status == 0 or not _LEFT.isdisjoint(flags)
    last, first = outcome.last_byte_seconds, outcome.first_content_seconds
    until = outcome.duration_seconds if last is None or left else last
    return Finished(
        endpoint=_ENDPOINTS.get(decision.endpoint, Endpoint.OTHER),
        status=outcome.status,
        whole_seconds=max(until - received, 0.0),
        first_token_seconds=None if first is None else max(first - received, 0.0),
        output_tokens=outcome.completion_tokens,
        stream=decision.stream,
        refused=decision.refused,
        client_left=left,
        timed_out=not _TIMED_OUT.isdisjoint(flags),
        cut_short=not _CUT_SHORT.isdisjoint(flags),
    )


def _rate(tally: _Tally, rules: SlaRules, now: float) -> SlaRate:
    by_judgement: Counter[Judgement] = Counter()
    causes: Counter[Cause] = Counter()
    for judged, count in zip(_KINDS, tally.counts, strict=True):
        by_judgement[judged.judgement] += count
        if judged.cause and count:
            causes[judged.cause] += count
    met, violated = by_judgement[Judgement.MET], by_judgement[Judgement.VIOLATED]
    says_something = met + violated >= rules.minimum_requests and now - tally.last_counted <= rules.stale_seconds
    return SlaRate(
        rate=violated / (met + violated) if says_something else None,
        met=met,
        violated=violated,
        rejected=by_judgement[Judgement.REJECTED],
        not_counted=by_judgement[Judgement.NOT_COUNTED],
        causes=tuple(sorted(causes.items())),
    )
