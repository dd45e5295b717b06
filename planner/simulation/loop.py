"""The course of events: arrivals, decisions, ends of runs, turns of those who wait, failures.

`run` goes on until it needs something that only Python has: an answer of `decide` that it was not given yet, or what a
heartbeat changes. Of events at the same time a failure comes first, then ends of runs, heartbeats, those whose patience
is over, and arrivals.
"""

from __future__ import annotations

import numpy as np

from planner.simulation.batching import advance, begin_run, blocks_of, enqueue, iterations_until, leave_run
from planner.simulation.compiling import compiled, entrance
from planner.simulation.state import (
    ENGINE_REFUSED,
    HOLD,
    LOOK_CLOSER,
    LOST,
    NEVER,
    NOBODY,
    QUEUE_FULL,
    REFUSE,
    REFUSED,
    RUNNING,
    SECOND,
    SEND,
    SERVED,
    WAITED_TOO_LONG,
    Array,
    State,
)
from planner.simulation.waiting import (
    again_row,
    deadline,
    find_timeout,
    insert,
    join,
    leave,
    look_again,
    next_row,
)

# What `run` returns.
DONE, NEEDS_ANSWER, HEARTBEAT, FAILED = range(4)

_ROOM = 1000  # thousandths, of one request


@entrance
def run(s: State) -> int:  # noqa: PLR0912 - one branch for each kind of event
    q, now = s.requests, s.clockwork[0]
    again = again_row(s)
    while True:
        if now.serve and not _serve(s):
            return NEEDS_ANSWER
        while s.rows[again].head != NOBODY:
            answer = _decide(s, s.rows[again].head, _free(s, NOBODY, 0))
            if answer == NOBODY:
                return NEEDS_ANSWER
            _do(s, leave(s, again), answer)
        if now.ended != NOBODY:
            i, now.ended = now.ended, NOBODY
            begin_run(s, i, now.clock)
        if now.next == q.size and now.present == 0:
            return DONE
        if now.line_changed:
            find_timeout(s)
        end = s.instances[s.heap[0]].end if now.in_heap else NEVER
        arrival = q[now.next].arrival if now.next < q.size else NEVER
        at = min(end, arrival, now.beat, now.timeout, now.failure)
        _pass_time(s, at)
        if now.failure == at:
            return FAILED
        if end == at:
            _end_run(s, s.heap[0])
        elif now.beat == at:
            if now.present or not now.calm:
                return HEARTBEAT
            now.beat += (min(arrival, now.failure) - at) // now.beat_every * now.beat_every + now.beat_every
        elif now.timeout == at:
            _lose_patience(s)
        else:
            answer = _decide(s, now.next, _free(s, NOBODY, 0))
            if answer == NOBODY:
                return NEEDS_ANSWER
            now.next += 1
            now.present += 1
            _do(s, now.next - 1, answer)


@entrance
def fail(s: State, i: int) -> None:
    """An instance is gone. What it had not begun to answer goes to another one of its pool, as Envoy retries it."""
    engine = s.instances[i]
    if not engine.alive:
        return
    engine.alive = 0
    _count_room(s, i)
    if engine.phase == RUNNING:
        leave_run(s, i)
    for place in range(engine.running):
        _retry(s, s.batches[i, place].request)
    while engine.queued > 0:
        r = engine.queue
        engine.queue = s.requests[r].following
        engine.queued -= 1
        _retry(s, r)
    engine.running = engine.held = engine.used = 0
    look_again(s, True)


@entrance
def settle(s: State) -> None:
    """All instances are as of the last iteration that has ended."""
    now = s.clockwork[0]
    for place in range(now.in_heap):
        i = s.heap[place]
        advance(s, i, iterations_until(s.instances[i], now.clock))


@entrance
def let_go(s: State) -> None:
    """Those who are held decide again."""
    look_again(s, False)


@entrance
def place_of(keys: Array, key: int) -> int:
    return find(keys, key)


@entrance
def recount_rooms(s: State) -> None:
    """After a change of what instances may have."""
    for i in range(s.instances.size):
        _count_room(s, i)
    s.clockwork[0].serve = 1


# --- deciding ------------------------------------------------------------------------------------------------------


@compiled
def find(keys: Array, key: int) -> int:
    """The place in the table of a key, or that where it belongs."""
    place = (key * 0x9E3779B97F4A7C1 >> 20) & (keys.size - 1)
    while keys[place] not in (NOBODY, key):
        place = (place + 1) & (keys.size - 1)
    return place


@compiled
def _decide(s: State, r: int, free: int) -> int:
    """The answer for a request, NOBODY where it is missing."""
    request, now = s.requests[r], s.clockwork[0]
    pin = waited = 0
    if request.session >= 0 and now.clock - s.sessions[request.session].at <= now.pin_lasts:
        pin = s.sessions[request.session].pin
    if request.began != NOBODY and now.clock > request.began:
        waited = 1 if now.clock - request.began < now.aged_after else 2
    case = (request.kind * now.needs + request.need) * 9 + pin * 3 + waited
    cases = now.kinds * now.needs * 9
    key = (now.fleet * cases + case) << s.pools.size | free
    place = find(s.keys, key)
    if s.keys[place] == key and s.answers[s.found[place]].action == LOOK_CLOSER:
        key = (now.exact_fleet * cases + case) << s.pools.size | free
        place = find(s.keys, key)
    if s.keys[place] != key:
        now.missing = key
        return NOBODY
    return s.found[place]


@compiled
def _free(s: State, held: int, waits: int) -> int:
    """The pools, as bits, that one may go to at once who holds room in one and has waited for these."""
    free = 0
    for p in range(s.pools.size):
        others = s.pools[p].wanted - (waits >> p & 1)
        if p == held or (s.pools[p].room >= _ROOM and others == 0):
            free |= 1 << p
    return free


@compiled
def _do(s: State, r: int, answer: int) -> None:
    """What was decided."""
    decided, request, now = s.answers[answer], s.requests[r], s.clockwork[0]
    if decided.action == SEND:
        _send(s, r, decided.pool, decided.limit, decided.binds)
        return
    if decided.action == REFUSE:
        _end(s, r, REFUSED)
        return
    tier = request.kind // 3
    if request.began == NOBODY:
        waiting = s.tiers[tier].waiting
        if not now.governed:
            waiting = s.tiers[0].waiting + s.tiers[1].waiting + s.tiers[2].waiting
        if waiting >= s.tiers[tier].most:
            _end(s, r, QUEUE_FULL)
            return
        request.began = now.clock
    join(s, tier, decided.waits, r, decided.action == HOLD)


@compiled
def _serve(s: State) -> bool:
    """Lets go on whom there is room for; False where an answer is missing, and then nothing is lost."""
    now = s.clockwork[0]
    for p in range(s.pools.size):
        while s.pools[p].room >= _ROOM and s.pools[p].wanted > 0:
            turns = now.since_aged
            row = next_row(s, p)
            waits = row % s.sets.size
            pool = p
            for place in range(s.orders.shape[1]):
                other = s.orders[waits, place]
                if other != NOBODY and s.pools[other].room >= _ROOM:
                    pool = other
                    break
            answer = _decide(s, s.rows[row].head, _free(s, pool, s.sets[waits]))
            if answer == NOBODY:
                now.since_aged = turns
                return False
            _do(s, leave(s, row), answer)
    now.serve = 0
    return True


@compiled
def _lose_patience(s: State) -> None:
    now = s.clockwork[0]
    for row in range(again_row(s)):
        while s.rows[row].head != NOBODY and deadline(s, row) <= now.clock:
            r = leave(s, row)
            request = s.requests[r]
            if now.clock - request.began >= s.tiers[request.kind // 3].longest:
                _end(s, r, WAITED_TOO_LONG)
            else:
                insert(s, again_row(s), r)


# --- engines -------------------------------------------------------------------------------------------------------


@compiled
def _send(s: State, r: int, p: int, limit: int, binds: int) -> None:
    request, context, now = s.requests[r], s.pools[p].context, s.clockwork[0]
    if request.prompt >= context or (request.cap > 0 and request.prompt + request.cap > context):
        _end(s, r, ENGINE_REFUSED)
        return
    longest = context - request.prompt
    if limit > 0:
        longest = min(longest, limit)
    if longest < request.output:
        request.output = longest
        request.shortened = 1
    if request.session >= 0 and binds:
        s.sessions[request.session].pin = 1 + s.pools[p].tier
        s.sessions[request.session].at = now.clock
    request.pool = p
    request.sent = now.clock
    _dispatch(s, r, p)


@compiled
def _dispatch(s: State, r: int, p: int) -> None:
    """To the less busy of two instances drawn by lot, as Envoy does with LEAST_REQUEST."""
    one, other = _draw(s, p), _draw(s, p)
    i = other if s.instances[other].held < s.instances[one].held else one
    enqueue(s, i, r, s.clockwork[0].clock)
    _count_room(s, i)


@compiled
def _draw(s: State, p: int) -> int:
    """One of the instances of a pool that are alive."""
    while True:
        i = s.pools[p].first + _dice(s) % s.pools[p].count
        if s.instances[i].alive:
            return i


@compiled
def _retry(s: State, r: int) -> None:
    p = s.requests[r].pool
    for i in range(s.pools[p].first, s.pools[p].first + s.pools[p].count):
        if s.instances[i].alive and s.requests[r].first == NOBODY:
            _dispatch(s, r, p)
            return
    _end(s, r, LOST)


@compiled
def _end_run(s: State, i: int) -> None:
    engine, now = s.instances[i], s.clockwork[0]
    leave_run(s, i)
    advance(s, i, engine.iterations)
    size = s.pools[engine.pool].block
    kept = 0
    for place in range(engine.running):
        sequence = s.batches[i, place]
        request = s.requests[sequence.request]
        if request.first == NOBODY and request.generated > 0:
            request.first = now.clock
        if request.generated >= request.output:
            engine.used -= blocks_of(sequence.computed, size)
            engine.held -= 1
            engine.finished += 1
            _end(s, sequence.request, SERVED)
            continue
        if kept < place:
            other = s.batches[i, kept]
            other.request = sequence.request
            other.computed = sequence.computed
            other.left = sequence.left
        kept += 1
    engine.running = kept
    _count_room(s, i)
    now.ended = i
    now.serve = 1


@compiled
def _end(s: State, r: int, outcome: int) -> None:
    request, now = s.requests[r], s.clockwork[0]
    request.outcome = outcome
    request.ended = now.clock
    now.present -= 1
    if outcome in (SERVED, LOST):
        missed = s.missed[request.pool, request.kind // 3]
        missed[0] += 1
        if outcome == LOST or _is_late(s, r):
            missed[1] += 1


@compiled
def _is_late(s: State, r: int) -> bool:
    request = s.requests[r]
    target = s.tiers[request.kind // 3]
    took = request.ended - request.arrival
    if request.first - request.arrival > target.first_token or took > target.whole:
        return True
    base = target.first_token if target.first_token < NEVER else 0
    return target.per_token < NEVER and took > base + target.per_token * request.output


@compiled
def _count_room(s: State, i: int) -> None:
    engine = s.instances[i]
    room = max(_ROOM * (engine.limit - engine.held) + engine.kept, 0) if engine.alive else 0
    s.pools[engine.pool].room += room - engine.room
    engine.room = room


# --- time and dice -------------------------------------------------------------------------------------------------


@compiled
def _pass_time(s: State, at: int) -> None:
    """Counts whole seconds and the rest apart: the area under the number present outgrows 64 bits."""
    now = s.clockwork[0]
    passed = at - now.clock
    rest = now.area_rest + now.present * (passed % SECOND)
    now.area_seconds += now.present * (passed // SECOND) + rest // SECOND
    now.area_rest = rest % SECOND
    now.clock = at


@compiled
def _dice(s: State) -> int:
    """The next of SplitMix64 (Steele, Lea, Flood 2014), of which 62 bits are left."""
    now = s.clockwork[0]
    now.dice += np.uint64(0x9E3779B97F4A7C15)
    x = now.dice
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((x ^ (x >> np.uint64(31))) >> np.uint64(2))  # type: ignore[return-value]
