"""The state in which a course of events begins."""

from __future__ import annotations

import numpy as np

from controlplane.model import FormatTier, QosTier, Verdict
from controlplane.policy.qos import Mode
from controlplane.policy.settings import Policy
from planner.simulation.fleet import FleetError, SimulatedFleet
from planner.simulation.routes import KINDS, TIERS, VERDICTS
from planner.simulation.state import (
    ANSWER,
    INSTANCE,
    NEVER,
    NOBODY,
    NOW,
    POOL,
    REQUEST,
    ROW,
    SECOND,
    SEQUENCE,
    SESSION,
    TIER,
    Records,
    State,
)
from planner.workload.workload import NO_CAP, NO_SESSION, Integers, Workload

# Powers of two; the first is of a hash table.
_KEYS = 1 << 12
_ANSWERS = 1 << 6
# Sets of pools that requests wait for.
MOST_SETS = 64
# From the first arrival to the last. Times end at NEVER, and the last ones have to be answered before.
MOST_SECONDS = 40 * 86_400.0


def first_state(workload: Workload, fleet: SimulatedFleet, contexts: tuple[int, ...], seed: int) -> State:
    """`contexts` are those that the fleet's pools have, ascending. Raises FleetError."""
    if workload.seconds > MOST_SECONDS:
        raise FleetError(
            f"requests come over {workload.seconds / 86_400:,.0f} days, and {MOST_SECONDS / 86_400:.0f} can be "
            "simulated; let them come faster, or take a part of them"
        )
    places = max(pool.engine.max_sequences for pool in fleet.pools)
    sessions, session = _sessions(workload)
    rows = records(ROW, len(TIERS) * MOST_SETS + len(TIERS) + 1)
    rows.head = rows.tail = NOBODY
    return State(
        requests=_requests(workload, fleet.policy, contexts, session),
        pools=_pools(fleet),
        instances=_instances(fleet),
        batches=np.zeros((fleet.instances, places), SEQUENCE).view(np.recarray),
        heap=np.zeros(fleet.instances, np.int64),
        rows=rows,
        sets=np.zeros(MOST_SETS, np.int64),
        orders=np.full((MOST_SETS, len(fleet.pools)), NOBODY),
        tiers=_tiers(fleet.policy),
        missed=np.zeros((len(fleet.pools), len(TIERS), 2), np.int64),
        sessions=records(SESSION, sessions),
        keys=np.full(_KEYS, NOBODY),
        found=np.zeros(_KEYS, np.int64),
        answers=records(ANSWER, _ANSWERS),
        clockwork=_now(fleet, len(contexts) + 1, seed),
    )


def records(kind: np.dtype[np.void], size: int) -> Records:
    return np.zeros(size, kind).view(np.recarray)


def picoseconds(seconds: float) -> int:
    return round(seconds * SECOND)


def expected_output(workload: Workload, policy: Policy) -> int:
    """What the fleet has learned to expect of answers that clients do not cap."""
    free = workload.output_tokens[workload.output_cap == NO_CAP]
    return int(np.ceil(np.quantile(free, policy.estimation.output_quantile))) if free.size else 1


def _sessions(workload: Workload) -> tuple[int, Integers]:
    """How many there are, and each request's, from 0."""
    if workload.session is None:
        return 0, np.full(len(workload), NO_SESSION, np.int32)
    known, found = np.unique(workload.session, return_inverse=True)
    session = found.astype(np.int32)
    session[workload.session == NO_SESSION] = NO_SESSION
    return known.size, session


def _requests(workload: Workload, policy: Policy, contexts: tuple[int, ...], session: Integers) -> Records:
    start = workload.arrival_seconds[0] if len(workload) else 0.0
    # As the policy estimates: what is expected of an answer is cut to what the largest context leaves.
    left = np.maximum(contexts[-1] - workload.input_tokens, 1)
    allowance = np.minimum(expected_output(workload, policy), left)
    budget = workload.input_tokens + np.where(workload.output_cap == NO_CAP, allowance, workload.output_cap)
    tier = TIERS.index(policy.tenants.qos_tier) if workload.qos_tier is None else workload.qos_tier.astype(np.int16)
    verdict = VERDICTS.index(Verdict.NEUTRAL) if workload.verdict is None else workload.verdict
    requests = records(REQUEST, len(workload))
    requests.arrival = np.rint((workload.arrival_seconds - start) * SECOND)
    requests.began = requests.sent = requests.first = requests.ended = NOBODY
    requests.prompt = workload.input_tokens
    requests.output = workload.output_tokens
    requests.cap = workload.output_cap
    requests.session = session
    requests.following = requests.pool = NOBODY
    requests.kind = tier * len(VERDICTS) + verdict
    requests.need = np.searchsorted(np.array(contexts), budget)
    return requests


def _pools(fleet: SimulatedFleet) -> Records:
    pools = records(POOL, len(fleet.pools))
    pools.count = [pool.instances for pool in fleet.pools]
    pools.first = np.cumsum(pools.count) - pools.count
    for record, pool in zip(pools, fleet.pools, strict=True):
        engine = pool.engine
        record.context = engine.max_context
        record.tier = tuple(FormatTier).index(pool.tier(fleet.policy))
        record.fixed = picoseconds(engine.fixed_seconds)
        if engine.scales_with_length:
            record.per_length = picoseconds(engine.per_sequence_seconds / engine.reference_tokens)
        else:
            record.per_sequence = picoseconds(engine.per_sequence_seconds)
        record.per_token = picoseconds(engine.seconds_per_token)
        record.chunk = engine.chunk_tokens
        record.budget = pool.token_budget
        record.blocks = engine.kv_blocks
        record.block = engine.block_tokens
        record.sequences = engine.max_sequences
    return pools


def _instances(fleet: SimulatedFleet) -> Records:
    instances = records(INSTANCE, fleet.instances)
    instances.pool = np.repeat(np.arange(len(fleet.pools)), [pool.instances for pool in fleet.pools])
    instances.limit = np.repeat(
        [pool.engine.max_sequences for pool in fleet.pools], [pool.instances for pool in fleet.pools]
    )
    instances.queue = instances.queue_end = instances.place = NOBODY
    instances.alive = True
    return instances


def _tiers(policy: Policy) -> Records:
    governed = policy.qos.mode is Mode.ENABLED
    tiers = records(TIER, len(TIERS))
    for record, tier in zip(tiers, QosTier, strict=True):
        rules, target = policy.qos.of(tier), policy.sla.of(tier)
        longest = rules.longest_wait_seconds if governed else policy.waiting.longest_seconds
        record.longest = picoseconds(longest)
        record.most = rules.most_waiting if governed else policy.waiting.most_waiting
        record.first_token = _target(target.first_token_ms)
        record.per_token = _target(target.output_token_ms)
        record.whole = _target(target.whole_ms)
    return tiers


def _target(milliseconds: float | None) -> int:
    return NEVER if milliseconds is None else picoseconds(milliseconds / 1000)


def _now(fleet: SimulatedFleet, needs: int, seed: int) -> Records:
    qos = fleet.policy.qos
    clockwork = records(NOW, 1)
    now = clockwork[0]
    now.beat = now.beat_every = picoseconds(fleet.heartbeat_seconds)
    now.failure = now.timeout = NEVER
    now.ended = NOBODY
    now.aged_after = picoseconds(qos.aged_after_seconds)
    now.aged_turn = qos.aged_turn
    now.governed = qos.mode is Mode.ENABLED
    now.pin_lasts = picoseconds(fleet.policy.sessions.ttl_seconds)
    now.kinds, now.needs = KINDS, needs
    now.calm = True
    now.dice = seed
    return clockwork
