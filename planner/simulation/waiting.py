"""The filter's line: who waits for which pools, and whose turn it is when one of them has room.

As in the filter: nobody overtakes another one who waits for the same pool, better QoS tiers come first where they are
governed, and after so many turns whoever has waited longest, if for long.
"""

from __future__ import annotations

from planner.simulation.compiling import compiled
from planner.simulation.state import NEVER, NOBODY, Records, State

TIERS = 3


@compiled
def row_of(s: State, tier: int, waits: int) -> int:
    return tier * s.sets.size + waits


@compiled
def held_row(s: State, tier: int) -> int:
    """Of those who wait for the pressure to fall."""
    return TIERS * s.sets.size + tier


@compiled
def again_row(s: State) -> int:
    """Of those who decide again, whether there is room for them or not."""
    return TIERS * s.sets.size + TIERS


@compiled
def insert(s: State, place: int, r: int) -> None:
    q, row = s.requests, s.rows[place]
    if row.head == NOBODY:
        q[r].following = NOBODY
        row.head = row.tail = r
    elif _earlier(q, row.tail, r):
        q[r].following = NOBODY
        q[row.tail].following = row.tail = r
    elif _earlier(q, r, row.head):
        q[r].following = row.head
        row.head = r
    else:
        before = row.head
        while _earlier(q, q[before].following, r):
            before = q[before].following
        q[r].following = q[before].following
        q[before].following = r


@compiled
def join(s: State, tier: int, waits: int, r: int, held: bool) -> None:
    s.tiers[tier].waiting += 1
    s.clockwork[0].line_changed = 1
    if held:
        insert(s, held_row(s, tier), r)
        return
    insert(s, row_of(s, tier, waits), r)
    for p in range(s.pools.size):
        s.pools[p].wanted += s.sets[waits] >> p & 1


@compiled
def leave(s: State, place: int) -> int:
    """The first of a row goes."""
    row = s.rows[place]
    r = row.head
    row.head = s.requests[r].following
    if row.head == NOBODY:
        row.tail = NOBODY
    s.clockwork[0].line_changed = 1
    size = s.sets.size
    if place < TIERS * size:
        s.tiers[place // size].waiting -= 1
        for p in range(s.pools.size):
            s.pools[p].wanted -= s.sets[place % size] >> p & 1
    elif place < again_row(s):
        s.tiers[place - TIERS * size].waiting -= 1
    return r


@compiled
def next_row(s: State, pool: int) -> int:
    """The row whose first one has the next turn at a pool, for which somebody waits."""
    q, rows, now = s.requests, s.rows, s.clockwork[0]
    chosen = oldest = NOBODY
    for tier in range(TIERS):
        if chosen != NOBODY and now.governed:
            break
        for waits in range(now.sets):
            place = row_of(s, tier, waits)
            if rows[place].head == NOBODY or not s.sets[waits] >> pool & 1:
                continue
            if chosen == NOBODY or _earlier(q, rows[place].head, rows[chosen].head):
                chosen = place
    if not now.governed:
        return chosen
    if now.since_aged >= now.aged_turn - 1:
        for place in range((chosen // s.sets.size + 1) * s.sets.size, TIERS * s.sets.size):
            r = rows[place].head
            if r == NOBODY or not s.sets[place % s.sets.size] >> pool & 1:
                continue
            is_aged = now.clock - q[r].began >= now.aged_after
            if is_aged and (oldest == NOBODY or _earlier(q, r, rows[oldest].head)):
                oldest = place
    if oldest != NOBODY:
        now.since_aged = 0
        return oldest
    now.since_aged += 1
    return chosen


@compiled
def look_again(s: State, everybody: bool) -> None:
    """Those who are held decide again, or all who wait."""
    for place in range(0 if everybody else TIERS * s.sets.size, again_row(s)):
        while s.rows[place].head != NOBODY:
            insert(s, again_row(s), leave(s, place))


@compiled
def deadline(s: State, place: int) -> int:
    """Until when the first of a row waits."""
    size = s.sets.size
    began = s.requests[s.rows[place].head].began
    if place < TIERS * size:
        return began + s.tiers[place // size].longest
    return began + min(s.clockwork[0].aged_after, s.tiers[place - TIERS * size].longest)


@compiled
def find_timeout(s: State) -> None:
    now = s.clockwork[0]
    now.line_changed = 0
    now.timeout = NEVER
    for tier in range(TIERS):
        for waits in range(now.sets):
            place = row_of(s, tier, waits)
            if s.rows[place].head != NOBODY:
                now.timeout = min(now.timeout, deadline(s, place))
        if s.rows[held_row(s, tier)].head != NOBODY:
            now.timeout = min(now.timeout, deadline(s, held_row(s, tier)))


@compiled
def _earlier(q: Records, one: int, other: int) -> bool:
    return q[one].began < q[other].began or (q[one].began == q[other].began and one < other)
