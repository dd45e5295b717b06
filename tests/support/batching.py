"""Continuous batching as vLLM does it, iteration by iteration, without its arithmetic: no I/O, and no clock of its own.

Sequences are admitted first come, first served, up to `max_sequences`. In each iteration a sequence whose prompt is not
read yet reads a chunk of it, as far as the budget of tokens goes, and any other one gets one token. KV blocks are taken
as sequences grow; when none is left the sequence that came last gives its own back, and begins anew at the head of the
queue. An iteration of n sequences takes `fixed` + `per_sequence` * n seconds (arXiv 2604.08075 has 8 ms and 0.65 ms for
Llama-3-70B on A100, chunks of 512).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Physics:
    """`fixed` and `per_sequence` in seconds, all else in tokens, blocks and sequences."""

    fixed: float = 0.008
    per_sequence: float = 0.00065
    chunk: int = 512
    token_budget: int = 8192
    block_size: int = 16
    blocks: int = 65_536
    max_sequences: int = 16


@dataclass(slots=True, eq=False)
class Sequence:
    """One request in the engine. `computed` are the tokens whose keys and values are in its blocks."""

    prompt: int
    output: int
    priority: int = 0
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    preemptions: int = 0

    @property
    def finished(self) -> bool:
        return self.generated >= self.output

    @property
    def to_read(self) -> int:
        """Of the prompt, and after a preemption of what it had generated before."""
        return self.prompt + max(self.generated - 1, 0) - self.computed


@dataclass(frozen=True, slots=True)
class Iteration:
    """What one iteration brought about, once its `seconds` are over."""

    seconds: float
    first_tokens: tuple[Sequence, ...]
    finished: tuple[Sequence, ...]


@dataclass(slots=True)
class Batch:
    """What an engine runs. Those of a lower `priority` value are admitted first, then those that came first."""

    physics: Physics
    running: list[Sequence] = field(default_factory=list)
    waiting: deque[Sequence] = field(default_factory=deque)
    used_blocks: int = 0
    preemptions: int = 0

    def add(self, sequence: Sequence) -> None:
        place = len(self.waiting)
        while place > 0 and self.waiting[place - 1].priority > sequence.priority:
            place -= 1
        self.waiting.insert(place, sequence)

    def remove(self, sequence: Sequence) -> None:
        """Of a client that has gone; no matter if it is finished."""
        if sequence in self.running:
            self.running.remove(sequence)
            self._give_back(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def step(self) -> Iteration | None:
        """The next iteration; None when there is nothing to do."""
        self._admit()
        if not self.running:
            return None
        budget = self.physics.token_budget
        worked: list[tuple[Sequence, int]] = []
        for sequence in list(self.running):
            if sequence not in self.running:  # preempted for one before it
                continue
            tokens = min(self.physics.chunk, sequence.to_read, budget) if sequence.to_read > 0 else min(1, budget)
            if tokens > 0 and self._grow(sequence, tokens):
                budget -= tokens
                worked.append((sequence, tokens))
        worked = [(sequence, tokens) for sequence, tokens in worked if sequence in self.running]
        first, finished = [], []
        for sequence, tokens in worked:
            sequence.computed += tokens
            if sequence.to_read > 0:
                continue
            sequence.generated += 1
            if sequence.generated == 1:
                first.append(sequence)
            if sequence.finished:
                self.running.remove(sequence)
                self._give_back(sequence)
                finished.append(sequence)
        seconds = self.physics.fixed + self.physics.per_sequence * len(worked)
        return Iteration(seconds, tuple(first), tuple(finished))

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.physics.max_sequences:
            sequence = self.waiting[0]
            needed = self._blocks_of(min(self.physics.chunk, sequence.to_read))
            if self.used_blocks + needed > self.physics.blocks:
                return
            self.running.append(self.waiting.popleft())

    def _grow(self, sequence: Sequence, tokens: int) -> bool:
        """Whether it has the blocks for so many more tokens; those that came last give theirs up for it."""
        needed = self._blocks_of(sequence.computed + tokens) - sequence.blocks
        while self.used_blocks + needed > self.physics.blocks:
            last = self.running[-1]
            self._preempt(last)
            if last is sequence:
                return False
        sequence.blocks += needed
        self.used_blocks += needed
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._give_back(sequence)
        sequence.computed = 0
        sequence.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(sequence)

    def _give_back(self, sequence: Sequence) -> None:
        self.used_blocks -= sequence.blocks
        sequence.blocks = 0

    def _blocks_of(self, tokens: int) -> int:
        return math.ceil(tokens / self.physics.block_size)
