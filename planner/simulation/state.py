"""Everything that changes while a fleet is simulated, as arrays of records that compiled code works on.

Times are whole picoseconds from the first arrival, so that many iterations at once end at the very time at which they
end one by one. They end before NEVER, after 53 days.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.int64]
# Of one of the record types below. Of an element, `records[i].field` is a number.
Records: TypeAlias = Any

SECOND = 10**12
NEVER = 2**62
NOBODY = -1

# What becomes of a request.
PENDING, SERVED, REFUSED, QUEUE_FULL, WAITED_TOO_LONG, ENGINE_REFUSED, LOST = range(7)

# What an answer says; the last one that it holds for one headroom only.
SEND, WAIT, HOLD, REFUSE, LOOK_CLOSER = range(5)

# What an instance does: nothing, what comes after a run, a run.
IDLE, ENDING, RUNNING = range(3)

# Times that have not come are NOBODY.
REQUEST = np.dtype(
    [
        ("arrival", "i8"),
        ("began", "i8"),  # when it began to wait in the filter
        ("sent", "i8"),  # when an engine got it
        ("first", "i8"),  # when its first token was there
        ("ended", "i8"),
        ("prompt", "i4"),
        ("output", "i4"),  # tokens that are generated in the end
        ("generated", "i4"),  # so far
        ("cap", "i4"),
        ("session", "i4"),
        ("following", "i4"),  # who waits behind it, in an engine or in the filter
        ("kind", "i2"),
        ("pool", "i2"),
        ("preemptions", "i2"),
        ("need", "i1"),  # contexts that are too small for it
        ("outcome", "i1"),
        ("shortened", "i1"),
    ]
)

# Room is counted in thousandths of a request.
POOL = np.dtype(
    [
        ("first", "i8"),  # of its instances, which stand together
        ("count", "i8"),
        ("context", "i8"),
        ("tier", "i8"),
        ("room", "i8"),
        ("wanted", "i8"),  # requests that wait for it in the filter
        ("fixed", "i8"),  # picoseconds of an iteration
        ("per_sequence", "i8"),
        ("per_length", "i8"),  # of a token in the KV cache
        ("per_token", "i8"),  # of a token that is computed
        ("chunk", "i8"),
        ("budget", "i8"),  # tokens computed in one iteration
        ("blocks", "i8"),
        ("block", "i8"),  # tokens of one
        ("sequences", "i8"),
    ]
)

# A run is so many `iterations` from `start` on in which the same sequences do the same. Its jth one takes the larger of
# `moving` + `growth` * j and `computing`.
INSTANCE = np.dtype(
    [
        ("pool", "i8"),
        ("start", "i8"),
        ("end", "i8"),
        ("iterations", "i8"),
        ("moving", "i8"),
        ("growth", "i8"),
        ("computing", "i8"),
        ("running", "i8"),
        ("used", "i8"),  # blocks
        ("queue", "i8"),  # the first in its own queue
        ("queue_end", "i8"),
        ("queued", "i8"),
        ("held", "i8"),  # requests that it has, running and queued
        ("room", "i8"),
        ("kept", "i8"),  # thousandths of requests that are to wait in the engine, so that it never runs dry
        ("limit", "i8"),  # sequences, as the last heartbeat saw them
        ("finished", "i8"),  # since the last heartbeat
        ("busy", "i8"),
        ("place", "i8"),  # in the heap
        ("occupied", "f8"),  # sequences * picoseconds
        ("alive", "i1"),
        ("phase", "i1"),
        ("admits", "i1"),  # whether one more would join at the next iteration
    ]
)

# A sequence in an instance's batch.
SEQUENCE = np.dtype(
    [
        ("request", "i4"),
        ("computed", "i4"),
        ("share", "i4"),  # tokens that it computes in each iteration
        ("left", "i4"),  # of what it must read before it decodes
    ]
)

# Of the filter's line: those of one QoS tier that wait for the same pools, in the order in which they began. Then
# come rows of those who are held, by tier, and one of those who decide again.
ROW = np.dtype([("head", "i8"), ("tail", "i8")])

# Targets are NEVER where there is none; `longest` and `most` bound the line.
TIER = np.dtype(
    [
        ("waiting", "i8"),
        ("longest", "i8"),
        ("most", "i8"),
        ("first_token", "i8"),
        ("per_token", "i8"),
        ("whole", "i8"),
    ]
)

# `limit` is of the output tokens, 0 for none; `waits` is a set of pools.
ANSWER = np.dtype([("action", "i8"), ("pool", "i8"), ("limit", "i8"), ("waits", "i8"), ("binds", "i8")])

# `pin` is 0 for none, else 1 + the tier's place.
SESSION = np.dtype([("pin", "i8"), ("at", "i8")])

NOW = np.dtype(
    [
        ("clock", "i8"),
        ("next", "i8"),  # request to arrive
        ("fleet", "i8"),  # number of the fleet's state
        ("exact_fleet", "i8"),
        ("beat", "i8"),  # when the next heartbeat is due
        ("beat_every", "i8"),
        ("calm", "i8"),  # whether heartbeats change nothing while nobody is there
        ("failure", "i8"),  # when the next instance fails
        ("timeout", "i8"),  # when the next one who waits loses patience
        ("line_changed", "i8"),
        ("serve", "i8"),  # whether there may be room for who waits
        ("ended", "i8"),  # the instance whose next run is to begin
        ("in_heap", "i8"),
        ("present", "i8"),  # requests in the system
        ("area_seconds", "i8"),  # under the number of these: whole seconds,
        ("area_rest", "i8"),  # and picoseconds
        ("since_aged", "i8"),  # turns
        ("aged_after", "i8"),
        ("aged_turn", "i8"),
        ("governed", "i8"),
        ("pin_lasts", "i8"),
        ("kinds", "i8"),
        ("needs", "i8"),
        ("sets", "i8"),
        ("missing", "i8"),  # the key that there is no answer for
        ("dice", "u8"),
    ]
)


class State(NamedTuple):
    requests: Records
    pools: Records
    instances: Records
    batches: Records  # SEQUENCE, by instance and place
    heap: Array  # instances that run, by the end of their runs
    rows: Records
    sets: Array  # of pools that are waited for: bits
    orders: Array  # of a set's pools, the best first, then NOBODY
    tiers: Records
    missed: Array  # by pool and tier: requests that ended since the last heartbeat, and those that missed their targets
    sessions: Records
    keys: Array  # a hash table of what `decide` was asked,
    found: Array  # and which of the answers it gave
    answers: Records
    clockwork: Records  # one NOW
