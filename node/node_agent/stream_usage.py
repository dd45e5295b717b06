"""Finds out whether an engine tells token counts at the end of a stream unasked, by one request for one token.

Clients seldom ask for them, and without them a stream teaches nothing about how many tokens its request needed. vLLM
tells them when it is started with `--enable-force-include-usage`, which shows nowhere else. An engine is asked once it
is described, and again only when it is described as another one. Engines of unknown kind are not asked: such a server
may load a model for it, or charge for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

from node_agent.backoff import Backoff
from node_agent.engine import EngineUnavailableError, Found
from node_agent.http import EngineHttp
from node_agent.membership import Sleep

_log = logging.getLogger(__name__)

ASKED_ENGINES = frozenset({"vllm", "sglang", "llama.cpp"})
# A busy engine may let the request wait.
ANSWER_SECONDS = 30.0
MOST_TRIES = 3

_ONE_TOKEN = {"max_tokens": 1, "temperature": 0, "stream": True}
# Chat first, which is what most ask for; models without a chat template complete only.
_ASKED = (
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    ("/v1/completions", {"prompt": "Hi"}),
)


class StreamUsage:
    """`told` is what is known of the engine as it was last described: None until it has answered."""

    def __init__(self, http: EngineHttp) -> None:
        self._http = http
        self._described: Found | None = None
        self._changed = asyncio.Event()
        self.told: bool | None = None

    def described(self, found: Found) -> None:
        if found != self._described:
            self._described, self.told = found, None
            self._changed.set()

    async def run(self, dice: Callable[[], float], sleep: Sleep) -> None:
        """Asks after each change, until it is cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._ask(Backoff(dice), sleep)

    async def _ask(self, backoff: Backoff, sleep: Sleep) -> None:
        found = self._described
        if found is None or found.engine not in ASKED_ENGINES or not found.models:
            return
        for _ in range(MOST_TRIES):
            try:
                told = await self._look(found.models[0].served_name)
            except EngineUnavailableError as error:
                _log.info("whether streams tell token counts is not known yet: %s", error)
                await sleep(backoff.next())
                continue
            if found is self._described:
                self.told = told
            _log.info("streams tell token counts unasked: %s", {True: "yes", False: "no", None: "unknown"}[told])
            return

    async def _look(self, model: str) -> bool | None:
        """None when the model answers neither chats nor completions. Raises EngineUnavailableError."""
        for path, prompt in _ASKED:
            answer = await self._http.post(path, {"model": model, **prompt, **_ONE_TOKEN}, ANSWER_SECONDS)
            if answer.ok:
                return any(_tells(event) for event in _events(answer.text))
            if answer.status >= 500 or answer.status == 429:
                raise EngineUnavailableError(f"{path} answered {answer.status}")
        return None


def _tells(event: dict[str, Any]) -> bool:
    """By OpenAI's `usage`, or by the `timings` of llama.cpp, which has no usage in chats."""
    usage, timings = event.get("usage"), event.get("timings")
    return (isinstance(usage, dict) and "prompt_tokens" in usage) or (
        isinstance(timings, dict) and {"prompt_n", "cache_n", "predicted_n"} <= timings.keys()
    )


def _events(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("data:"):
            try:
                value = json.loads(line.removeprefix("data:"))
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value
