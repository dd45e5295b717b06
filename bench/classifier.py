"""What judging a request costs on one core, beside a version that runs one regular expression for each listed word.

    python bench/classifier.py

Both read the same excerpts of chat bodies of 2 KB and of 50 KB. They are timed in turns, in many short rounds, so that
what else the machine does hits both alike: of each, the median of a round's calls counts, and of all rounds the median
of the faster half.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Callable

from controlplane.model import Ask, HttpRequest
from controlplane.policy.ask import parse
from controlplane.policy.classify import compile_rules
from controlplane.policy.settings import Policy
from controlplane.policy.words import DEFAULT_WORDS

SIZES = (2_000, 50_000)
ROUNDS = 60
CALLS = 50

_ENGLISH = (
    "We moved to the coast last spring and I am still getting used to the wind. The house is small but it has a garden "
    "that slopes down to the water, and the neighbours have been kind from the first day. My daughter wants to keep "
    "chickens, my son would rather have a boat, and I only want to plant something that survives the salt. So far "
    "neither the roses nor the beans have lived through a storm. Somebody told me to try lavender and sea holly. "
)
_CODE = (
    "class Ledger:\n    def __init__(self, path):\n        self.path = path\n        self.rows = []\n\n"
    "    def load(self):\n        with open(self.path) as source:\n            for line in source:\n"
    "                date, amount = line.split(';')\n                self.rows.append((date, float(amount)))\n\n"
    "    def balance(self):\n        return sum(amount for _, amount in self.rows)\n\n"
)
# ruff: noqa: RUF001 Chinese has full-width commas

_CHINESE = (
    "去年春天我们搬到了海边，我到现在还没有习惯这里的风。房子不大，不过有一个一直延伸到水边的院子，邻居们从第一天起就很热心。"
    "女儿想养鸡，儿子更想要一条小船，而我只想种点不怕盐的植物。到目前为止，玫瑰和豆子都没有熬过一场风暴。"
    "有人告诉我可以试试薰衣草和滨海刺芹。冬天快到了，屋顶还要修，木匠说要等到下个月才有空。"
)
# What the text begins and ends with.
_BODIES = {
    "English chat": ("", _ENGLISH, "What would you do in my place?"),
    "English task": ("Read the report below.\n", _ENGLISH, "Extract all plants and return them as a JSON array."),
    "code": ("Refactor this Python module.\n", _CODE, "Add type hints and a unit test for the balance."),
    "Chinese": ("请阅读下面的文字。\n", _CHINESE, "请提取所有植物的名称，用 JSON 返回。"),
    "mixed": ("请检查下面的 Python 代码。\n", _CODE + _CHINESE, "Explain the bug, 然后写一个单元测试。"),
}


def main() -> None:
    policy = Policy()
    classifier = compile_rules(policy.sensitivity)
    expressions = [_expression(word) for word in _listed_words()]
    print(f"{'median microseconds':<22}{'ours':>8}{f'by {len(expressions)} expressions':>22}")
    for size in SIZES:
        for name, parts in _BODIES.items():
            ask = _chat(size, *parts, policy)
            ours, theirs = _side_by_side(
                lambda ask=ask: classifier.classify(ask, 256),  # type: ignore[misc]
                lambda ask=ask: _search_each(expressions, ask),  # type: ignore[misc]
            )
            print(f"{name + f', {size // 1000} KB':<22}{ours:>8.1f}{theirs:>22.0f}")


def _chat(size: int, begin: str, text: str, end: str, policy: Policy) -> Ask:
    """A chat whose body has about `size` bytes."""
    room = size - 150 - len((begin + end).encode())
    content = begin + text * (room // len(text.encode())) + end
    messages = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": content}]
    body = json.dumps({"model": "llama", "temperature": 0, "messages": messages}, ensure_ascii=False).encode()
    ask = parse(HttpRequest("POST", "/v1/chat/completions", {}, body), policy)
    assert isinstance(ask, Ask)
    return ask


def _listed_words() -> list[str]:
    return sorted({word for words in DEFAULT_WORDS for word in (*words.words, *words.weak)})


def _expression(word: str) -> re.Pattern[str]:
    bound = r"\b" if word.isascii() else ""
    return re.compile(f"{bound}{re.escape(word)}{bound}", re.IGNORECASE)


def _search_each(expressions: list[re.Pattern[str]], ask: Ask) -> int:
    return sum(1 for text in (ask.system, ask.last_user) for expression in expressions if expression.search(text))


def _side_by_side(one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    rounds = [(_round(one, CALLS), _round(other, 1)) for _ in range(ROUNDS)]
    return _typical([mine for mine, _ in rounds]), _typical([theirs for _, theirs in rounds])


def _round(step: Callable[[], object], calls: int) -> float:
    taken: list[int] = []
    for _ in range(calls):
        started = time.perf_counter_ns()
        step()
        taken.append(time.perf_counter_ns() - started)
    return statistics.median(taken) / 1000


def _typical(rounds: list[float]) -> float:
    return statistics.median(sorted(rounds)[: len(rounds) // 2])


if __name__ == "__main__":
    main()
