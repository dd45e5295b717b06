"""The fake engine's batching is what benchmarks rest on."""

from __future__ import annotations

import httpx
from hypothesis import given
from hypothesis import strategies as st

from support.batching import Batch, Physics, Sequence
from support.batching_engine import running_batching_engine
from support.engine import EngineShape

SMALL = Physics(fixed=0.01, per_sequence=0.001, chunk=4, token_budget=8, block_size=2, blocks=12, max_sequences=3)


def run(batch: Batch, most: int = 10_000) -> list[tuple[float, int]]:
    """Seconds and sequences worked on in each iteration, until nothing is left."""
    done = []
    for _ in range(most):
        iteration = batch.step()
        if iteration is None:
            return done
        assert 0 <= batch.used_blocks <= batch.physics.blocks
        assert len(batch.running) <= batch.physics.max_sequences
        done.append((iteration.seconds, len(iteration.finished)))
    raise AssertionError("never ends")


def test_a_prompt_is_read_in_chunks_and_then_gives_a_token_an_iteration() -> None:
    batch = Batch(SMALL)
    batch.add(Sequence(prompt=10, output=3))
    steps = run(batch)
    assert [finished for _, finished in steps] == [0, 0, 0, 0, 1]  # 4 + 4 + 2 with the first token, then two more
    assert {seconds for seconds, _ in steps} == {0.011}


def test_sequences_of_lower_priority_value_come_first_and_else_those_that_came_first() -> None:
    batch = Batch(Physics(max_sequences=1))
    sequences = [Sequence(1, 1, priority) for priority in (1, 0, 1, 0)]
    for sequence in sequences:
        batch.add(sequence)
    finished = [iteration.finished[0] for _ in sequences if (iteration := batch.step())]
    assert finished == [sequences[1], sequences[3], sequences[0], sequences[2]]


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 11)), min_size=1, max_size=12))
def test_whatever_comes_is_finished_within_the_blocks_and_all_are_given_back(sizes: list[tuple[int, int]]) -> None:
    batch = Batch(SMALL)
    sequences = [Sequence(prompt, output) for prompt, output in sizes]
    for sequence in sequences:
        batch.add(sequence)
    assert sum(finished for _, finished in run(batch)) == len(sequences)
    assert batch.used_blocks == 0
    assert all(sequence.generated == sequence.output for sequence in sequences)
    assert batch.preemptions == sum(sequence.preemptions for sequence in sequences)


def test_when_blocks_run_out_the_last_that_came_begins_anew() -> None:
    batch = Batch(SMALL)
    first, last = Sequence(prompt=4, output=12), Sequence(prompt=4, output=12)
    batch.add(first)
    batch.add(last)
    run(batch)
    assert (first.preemptions, last.preemptions) == (0, 1)


async def test_the_engine_answers_by_it_whole_and_streamed() -> None:
    shape = EngineShape(max_num_seqs=4)
    body = {"model": shape.model, "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}
    async with running_batching_engine(shape, Physics()) as engine, httpx.AsyncClient(base_url=engine.url) as client:
        whole = (await client.post("/v1/chat/completions", json=body)).json()
        assert whole["usage"]["completion_tokens"] == 5
        streamed = await client.post("/v1/chat/completions", json={**body, "stream": True})
        events = streamed.text.strip().split("\n\n")
        assert len(events) == 3
        assert '"finish_reason": "length"' in events[1]
        assert events[-1] == "data: [DONE]"
        assert (engine.counters.running, engine.batch.used_blocks, engine.counters.finished) == (0, 0, 2)
        assert "vllm:num_preemptions_total" in (await client.get("/metrics")).text
