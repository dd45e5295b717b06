"""Continuous batching of one engine instance, by runs of iterations that are alike.

As vLLM schedules: sequences that run come first, each with one token or a chunk of its prompt, as far as the
budget of tokens goes. Blocks are taken as sequences grow; when none is left the sequence that came last gives its own
back and begins anew, first in the queue. Then the queue is admitted, unless somebody just had to go. A run ends when a
sequence has read its prompt or is complete, when blocks run short, or when somebody comes who can join.
"""

from __future__ import annotations

from planner.simulation.compiling import compiled
from planner.simulation.state import ENDING, IDLE, NOBODY, RUNNING, Records, State


@compiled
def blocks_of(tokens: int, size: int) -> int:
    return (tokens + size - 1) // size


@compiled
def time_of(engine: Records, k: int) -> int:
    """Of the first `k` iterations of the run, in picoseconds."""
    moving, growth, computing = engine.moving, engine.growth, engine.computing
    if growth == 0:
        return k * max(moving, computing)
    bound = 0  # iterations that computing bounds
    if moving + growth < computing:
        bound = min(k, (computing - moving - 1) // growth)
    return bound * computing + (k - bound) * moving + growth * ((k * (k + 1) - bound * (bound + 1)) // 2)


@compiled
def iterations_until(engine: Records, at: int) -> int:
    """How many iterations of the run have ended at this time."""
    passed = at - engine.start
    if engine.growth == 0:
        return min(passed // max(engine.moving, engine.computing), engine.iterations)
    low, high = 0, engine.iterations
    while low < high:
        middle = (low + high + 1) // 2
        if time_of(engine, middle) <= passed:
            low = middle
        else:
            high = middle - 1
    return low


@compiled
def advance(s: State, i: int, k: int) -> None:
    """The run goes on by `k` of its iterations."""
    if k == 0:
        return
    engine = s.instances[i]
    size = s.pools[engine.pool].block
    used = engine.used
    for place in range(engine.running):
        sequence = s.batches[i, place]
        share = sequence.share
        if share == 0:
            continue
        before = sequence.computed
        after = before + k * share
        sequence.computed = after
        used += blocks_of(after, size) - blocks_of(before, size)
        if sequence.left > 0:
            sequence.left -= k * share
            if sequence.left == 0:
                s.requests[sequence.request].generated += 1
        else:
            s.requests[sequence.request].generated += k
    took = time_of(engine, k)
    engine.used = used
    engine.busy += took
    engine.occupied += float(took) * engine.running
    engine.start += took
    engine.iterations -= k
    engine.moving += k * engine.growth


@compiled
def begin_run(s: State, i: int, at: int) -> None:  # noqa: PLR0915 - of one iteration, in one pass
    """Plans the next iteration, and how often it is repeated."""
    engine = s.instances[i]
    pool = s.pools[engine.pool]
    size, blocks, chunk, budget = pool.block, pool.blocks, pool.chunk, pool.budget
    used = engine.used  # at the end of the first iteration
    most, tokens, length, worked = 2**40, 0, 0, 0
    preempted = False
    place = 0
    while place < engine.running:
        sequence = s.batches[i, place]
        computed, left = sequence.computed, sequence.left
        share = min(chunk, left, budget) if left > 0 else min(1, budget)
        needed = blocks_of(computed + share, size) - blocks_of(computed, size)
        while used + needed > blocks and place < engine.running:
            used -= _preempt_last(s, i)
            preempted = True
        if place >= engine.running:
            break
        sequence.share = share
        if share > 0:
            used += needed
            budget -= share
            tokens += share
            length += computed
            worked += 1
            if left > 0:
                most = min(most, left // share)
            else:
                request = s.requests[sequence.request]
                most = min(most, request.output - request.generated)
        place += 1
    while not preempted and budget > 0 and engine.queued > 0 and engine.running < pool.sequences:
        request = s.requests[engine.queue]
        left = request.prompt + max(request.generated - 1, 0)
        share = min(chunk, left, budget)
        if used + blocks_of(share, size) > blocks:
            break
        _admit(s, i, left, share)
        used += blocks_of(share, size)
        budget -= share
        tokens += share
        worked += 1
        most = min(most, left // share)
    if worked == 0:
        engine.phase = IDLE
        return
    if preempted:
        most = 1
    elif used + ((most - 1) * tokens) // size + worked > blocks:
        most = _iterations_that_fit(s, i, most, size, blocks)
    engine.admits = budget > 0 and engine.queued == 0 and engine.running < pool.sequences
    engine.phase = RUNNING
    engine.start = at
    engine.iterations = most
    engine.moving = pool.fixed + pool.per_sequence * worked + pool.per_length * length
    engine.growth = pool.per_length * tokens
    engine.computing = pool.per_token * tokens
    engine.end = at + time_of(engine, most)
    _push(s, i)


@compiled
def enqueue(s: State, i: int, r: int, at: int) -> None:
    """A request reaches the engine."""
    engine = s.instances[i]
    s.requests[r].following = NOBODY
    if engine.queued == 0:
        engine.queue = r
    else:
        s.requests[engine.queue_end].following = r
    engine.queue_end = r
    engine.queued += 1
    engine.held += 1
    if engine.phase == IDLE:
        begin_run(s, i, at)
    elif engine.phase == RUNNING and engine.admits:
        _cut_short(s, i, at)
        engine.admits = 0  # nobody else can bring the end forward


@compiled
def leave_run(s: State, i: int) -> None:
    """The run is over, or its instance is no more."""
    now = s.clockwork[0]
    last = now.in_heap - 1
    place = s.instances[i].place
    now.in_heap = last
    s.instances[i].place = NOBODY
    s.instances[i].phase = ENDING
    if place != last:
        moved = s.heap[last]
        s.heap[place] = moved
        s.instances[moved].place = place
        _rise(s, place)
        _sink(s, s.instances[moved].place, last)


@compiled
def _cut_short(s: State, i: int, at: int) -> None:
    """Ends the run with the iteration that is under way, so that one who has come can join."""
    engine = s.instances[i]
    done = iterations_until(engine, at)
    if done + 1 < engine.iterations:
        engine.iterations = done + 1
        engine.end = engine.start + time_of(engine, done + 1)
        _rise(s, engine.place)


@compiled
def _preempt_last(s: State, i: int) -> int:
    """The blocks that this gives back."""
    engine = s.instances[i]
    engine.running -= 1
    sequence = s.batches[i, engine.running]
    given = blocks_of(sequence.computed, s.pools[engine.pool].block)
    engine.used -= given
    request = s.requests[sequence.request]
    request.preemptions += 1
    request.following = engine.queue if engine.queued > 0 else NOBODY
    if engine.queued == 0:
        engine.queue_end = sequence.request
    engine.queue = sequence.request
    engine.queued += 1
    return given


@compiled
def _admit(s: State, i: int, left: int, share: int) -> None:
    engine = s.instances[i]
    sequence = s.batches[i, engine.running]
    sequence.request = engine.queue
    sequence.computed = 0
    sequence.left = left
    sequence.share = share
    engine.queue = s.requests[engine.queue].following
    engine.queued -= 1
    engine.running += 1


@compiled
def _iterations_that_fit(s: State, i: int, most: int, size: int, blocks: int) -> int:
    """The largest number of iterations at whose end all have their blocks; the first one is known to fit."""
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        used = 0
        for place in range(s.instances[i].running):
            sequence = s.batches[i, place]
            used += blocks_of(sequence.computed + middle * sequence.share, size)
        if used <= blocks:
            low = middle
        else:
            high = middle - 1
    return low


# --- a heap of the instances that run; of two that end together the first one comes first --------------------------


@compiled
def _before(s: State, one: int, other: int) -> bool:
    first, second = s.instances[one].end, s.instances[other].end
    return first < second or (first == second and one < other)


@compiled
def _push(s: State, i: int) -> None:
    now = s.clockwork[0]
    s.heap[now.in_heap] = i
    s.instances[i].place = now.in_heap
    now.in_heap += 1
    _rise(s, s.instances[i].place)


@compiled
def _put(s: State, place: int, i: int) -> None:
    s.heap[place] = i
    s.instances[i].place = place


@compiled
def _rise(s: State, place: int) -> None:
    i = s.heap[place]
    while place > 0 and _before(s, i, s.heap[(place - 1) // 2]):
        _put(s, place, s.heap[(place - 1) // 2])
        place = (place - 1) // 2
    _put(s, place, i)


@compiled
def _sink(s: State, place: int, size: int) -> None:
    i = s.heap[place]
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and _before(s, s.heap[below + 1], s.heap[below]):
            below += 1
        if not _before(s, s.heap[below], i):
            break
        _put(s, place, s.heap[below])
        place = below
    _put(s, place, i)
