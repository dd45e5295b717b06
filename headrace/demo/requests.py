"""The requests that the demo sends: many kinds of task, languages, temperatures and APIs, some in sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

MODEL = "smollm2-135m"


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """`body` is sent as JSON to `path`; requests of one `session` keep their format tier."""

    title: str
    body: Mapping[str, Any]
    path: str = CHAT
    session: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))


def _chat(
    title: str,
    user: str,
    *,
    system: str | None = None,
    temperature: float | None = None,
    max_tokens: int = 32,
    session: str | None = None,
    **more: Any,
) -> DemoRequest:
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": user})
    body: dict[str, Any] = {"model": MODEL, "messages": messages, "max_tokens": max_tokens, **more}
    if temperature is not None:
        body["temperature"] = temperature
    if body.get("stream"):
        body["stream_options"] = {"include_usage": True}
    return DemoRequest(title, body, session=session)


_WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

_MEETING_NOTES = (
    "The harbour committee met on Tuesday evening in the old customs house. The chair reported that the repair of the "
    "east breakwater is two weeks behind, since the barge with the granite blocks had to wait for calmer seas. The "
    "treasurer warned that each further week costs the town eleven thousand. Three fishermen asked for a temporary "
    "berth at the south pier; the ferry company objected, because its summer timetable needs that pier from June on. "
    "After some discussion it was agreed that the boats may use the pier until the twentieth of May. "
)

DEMO_REQUESTS: tuple[DemoRequest, ...] = (
    _chat(
        "Python function",
        "Write a Python function that returns the n-th Fibonacci number without recursion.",
        system="You are a careful programmer. Answer with code only.",
        temperature=0,
        max_tokens=64,
    ),
    _chat("Arithmetic, step by step", "A train leaves at 9:40 and arrives at 13:05. How long is the journey? "
          "Reason step by step.", temperature=0, max_tokens=64),
    _chat(
        "Extraction as JSON",
        'Extract name and city as JSON from: "Ms Okafor moved her bakery from Lagos to Porto in 2021."',
        temperature=0,
        response_format={"type": "json_object"},
    ),
    _chat("SQL query", "Write a SQL query for the ten customers with the highest revenue in 2025.", temperature=0),
    _chat("Story, streamed", "Tell me a short story about a lighthouse keeper who collects lost songs.",
          temperature=0.9, max_tokens=64, stream=True),
    _chat("Poem about code", "Write a playful poem about code that refuses to compile.", temperature=1.0,
          max_tokens=48),
    _chat("Small talk", "Hi! I had a long day and just want to chat a little. How are you?", temperature=0.8),
    _chat("Role play, streamed", "Let us role-play: you are an old sea captain, and I enter your tavern.",
          temperature=1.1, stream=True),
    _chat("Plain question", "What is the capital of Australia?", temperature=0.5, max_tokens=16),
    _chat("No temperature given", "Give me three names for a ginger cat.", max_tokens=24),
    _chat("Tool call", "What is the weather in Porto?", temperature=0.2, tools=[_WEATHER_TOOL]),
    _chat("Long document, summary", "Summarise these minutes in two sentences:\n\n" + _MEETING_NOTES * 9,
          temperature=0.3, max_tokens=48),
    _chat("Long document, retold as a tale", "Retell this as a cheerful fairy tale:\n\n" + _MEETING_NOTES * 9,
          temperature=0.95, max_tokens=48),
    _chat("German: code", "Schreibe eine Python-Funktion, die prüft, ob ein Wort ein Palindrom ist.", temperature=0),
    _chat("French: story", "Raconte-moi une histoire courte sur un renard qui apprend à nager.", temperature=0.9),
    _chat("Spanish: mathematics", "Resuelve paso a paso: 3x + 7 = 28.", temperature=0),
    _chat("Chinese: poem", "请写一首关于秋天和大海的诗。", temperature=1.0),
    _chat("Japanese: JSON",
          "次の文から名前と年齢をJSONで抽出してください。「田中さんは三十四歳です。」", temperature=0),
    DemoRequest(
        "Plain completion",
        {"model": MODEL, "prompt": "Once upon a time, in a village by the sea,", "max_tokens": 32, "temperature": 0.9},
        path=COMPLETIONS,
    ),
    _chat("Session A begins: proof", "Prove step by step that the sum of two even numbers is even.", temperature=0,
          session="demo-a"),
    _chat("Session A goes on: chat", "Thanks! Now tell me a joke, just for fun.", temperature=1.0, session="demo-a"),
    _chat("Session B begins: story", "Let us write a silly story together. You start.", temperature=1.0,
          session="demo-b"),
    _chat("Session B goes on: code", "Now write a Python function that reverses a list.", temperature=0,
          session="demo-b"),
)  # fmt: skip
