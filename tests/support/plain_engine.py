"""One engine instance, iteration by iteration and token by token: what the simulator does in runs, in plain Python."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from planner.simulation.fleet import SimulatedPool
from planner.simulation.setup import picoseconds


@dataclass(slots=True, eq=False)
class PlainSequence:
    """A request. Times are in picoseconds, -1 while they have not come."""

    number: int
    arrival: int
    prompt: int
    output: int
    cap: int = 0
    budget: int = 0
    tier: int = 0
    verdict: int = 0
    session: int = -1
    began: int = -1
    first: int = -1
    ended: int = -1
    generated: int = 0
    computed: int = 0
    share: int = 0
    preemptions: int = 0
    pool: int = -1
    outcome: int = 0

    @property
    def to_read(self) -> int:
        return self.prompt + max(self.generated - 1, 0) - self.computed


@dataclass(slots=True)
class PlainEngine:
    pool: SimulatedPool
    running: list[PlainSequence] = field(default_factory=list)
    waiting: deque[PlainSequence] = field(default_factory=deque)
    ends_at: int | None = None
    is_ending: bool = False
    alive: bool = True
    most_used: int = 0
    finished: int = 0
    rate: float = 0.0
    kept: int = 0
    limit: int = 0

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.pool.engine.block_tokens)

    @property
    def used(self) -> int:
        return sum(self.blocks(each.computed) for each in self.running)

    @property
    def held(self) -> int:
        return len(self.running) + len(self.waiting)

    def begin(self, at: int) -> None:
        """Plans the next iteration."""
        self.is_ending = False
        engine = self.pool.engine
        budget, used = self.pool.token_budget, self.used
        preempted = False
        place = 0
        while place < len(self.running):
            each = self.running[place]
            each.share = min(engine.chunk_tokens, each.to_read, budget) if each.to_read > 0 else min(1, budget)
            needed = self.blocks(each.computed + each.share) - self.blocks(each.computed)
            while used + needed > engine.kv_blocks and place < len(self.running):
                last = self.running.pop()
                used -= self.blocks(last.computed)
                last.computed = last.share = 0
                last.preemptions += 1
                self.waiting.appendleft(last)
                preempted = True
            if place == len(self.running):
                break
            used += needed
            budget -= each.share
            place += 1
        while not preempted and budget and self.waiting and len(self.running) < engine.max_sequences:
            first = self.waiting[0]
            first.computed = 0
            first.share = min(engine.chunk_tokens, first.to_read, budget)
            if used + self.blocks(first.share) > engine.kv_blocks:
                break
            used += self.blocks(first.share)
            budget -= first.share
            self.running.append(self.waiting.popleft())
        self.most_used = max(self.most_used, used)
        worked = [each for each in self.running if each.share]
        if not worked:
            self.ends_at = None
            return
        if engine.scales_with_length:
            per_token = picoseconds(engine.per_sequence_seconds / engine.reference_tokens)
            moved = per_token * sum(each.computed + each.share for each in worked)
        else:
            moved = picoseconds(engine.per_sequence_seconds) * len(worked)
        moved += picoseconds(engine.fixed_seconds)
        computed = picoseconds(engine.seconds_per_token) * sum(each.share for each in worked)
        self.ends_at = at + max(moved, computed)

    def end(self, at: int) -> list[PlainSequence]:
        """The iteration is over. Returns who is complete."""
        self.ends_at = None
        self.is_ending = True
        complete = []
        for each in list(self.running):
            if not each.share:
                continue
            each.computed += each.share
            if each.to_read > 0:
                continue
            each.generated += 1
            if each.first < 0:
                each.first = at
            if each.generated >= each.output:
                self.running.remove(each)
                self.finished += 1
                complete.append(each)
        return complete
