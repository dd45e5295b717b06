"""The official OpenAI client works through the gateway as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio

from e2e.conftest import MODEL, RealFleet

pytestmark = pytest.mark.asyncio(loop_scope="session")

STORY = [{"role": "user", "content": "Tell me a short story about a fox."}]


@pytest_asyncio.fixture(loop_scope="session")
async def client(fleet: RealFleet) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{fleet.system.gateway}/v1", api_key="none", max_retries=0, timeout=60.0
    ) as made:
        yield made


async def test_chat_answers_with_usage(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=STORY, max_tokens=8)  # type: ignore[arg-type]
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8


async def test_streamed_chat_comes_in_pieces_and_ends(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=STORY,  # type: ignore[arg-type]
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert len(chunks) > 4
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert chunks[-1].usage is not None


async def test_completions_answer(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=8)
    assert answer.choices[0].text


async def test_embeddings_pass_through(client: openai.AsyncOpenAI) -> None:
    answer = await client.embeddings.create(model=MODEL, input="a red fox")
    assert len(answer.data[0].embedding) > 100


async def test_models_are_those_of_the_fleet(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]


async def test_an_unknown_model_is_a_not_found_error(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        await client.chat.completions.create(model="gpt-9", messages=STORY)  # type: ignore[arg-type]
    assert raised.value.code == "model_not_found"
    assert MODEL in raised.value.message


async def test_an_engines_own_error_passes_unchanged(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "word " * 20_000}])


async def test_a_body_over_the_limit_is_a_413(fleet: RealFleet, client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x" * (11 << 20)}])
    assert raised.value.status_code == 413
    assert raised.value.code == "body_too_large"
