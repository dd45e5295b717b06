"""How well the sensitivity rules tell requests apart: recall and precision of `sensitive`, by language and source.

    python bench/classifier_quality.py [FOLDER]

FOLDER holds English sets that are not ours to ship: mt_bench_questions.jsonl (lm-sys/FastChat), gsm8k_train_150.jsonl
(openai/grade-school-math), humaneval_40.jsonl (openai/human-eval), alpaca_seed_60.jsonl (tatsu-lab/stanford_alpaca).
The other languages' prompts are the project's own. Code, math, reasoning and extraction are the kinds that should be
sensitive. Each kind is asked at its usual temperature: MT-bench's, but 0.9 for writing, roleplay and chat. What is hot
is hardly ever sensitive, so the column `at 0` shows the precision when everything is asked at temperature 0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.model import Ask, HttpRequest, Verdict
from controlplane.policy.ask import parse
from controlplane.policy.classify import compile_rules
from controlplane.policy.settings import Policy

OWN = Path(__file__).resolve().parents[1] / "tests" / "controlplane" / "policy" / "labelled_prompts"
SENSITIVE_KINDS = {"code", "math", "reasoning", "extraction"}
TEMPERATURES = {
    "code": 0.0,
    "math": 0.0,
    "reasoning": 0.0,
    "extraction": 0.0,
    "writing": 0.9,
    "roleplay": 0.9,
    "chat": 0.9,
    "knowledge": 0.7,
    "summary": 0.3,
}
MT_BENCH_KINDS = {"coding": "code", "stem": "knowledge", "humanities": "knowledge"}
# Our reading of the Alpaca seed tasks, by their place in the file; the rest is general knowledge.
ALPACA_KINDS = {
    "code": (28, 31, 37, 41, 50),
    "math": (22, 25, 35, 45, 58),
    "reasoning": (1, 15),
    "extraction": (13, 26, 39, 42, 43, 53),
    "writing": (2, 4, 5, 8, 14, 18, 20, 21, 29, 46, 47, 49, 55, 56, 57, 59),
    "chat": (9, 10, 27, 34),
}


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    kind: str

    @property
    def is_sensitive(self) -> bool:
        return self.kind in SENSITIVE_KINDS


@dataclass(frozen=True, slots=True)
class Counts:
    """Of `sensitive` prompts and all that were `told` sensitive, `right` are both."""

    prompts: int
    sensitive: int
    told: int
    right: int

    @property
    def recall(self) -> float | None:
        return self.right / self.sensitive if self.sensitive else None

    @property
    def precision(self) -> float | None:
        return self.right / self.told if self.told else None


def main(folder: Path | None) -> None:
    sets = {f"{path.stem}: written before the lists": list(own_prompts(path)) for path in sorted(OWN.glob("*.jsonl"))}
    after = {
        f"{path.stem}: written after the lists": list(own_prompts(path))
        for path in sorted((OWN / "written_after").glob("*.jsonl"))
    }
    sets |= after
    sets["all written after the lists"] = [prompt for some in after.values() for prompt in some]
    if folder is not None:
        held_out = {name: list(prompts) for name, prompts in english(folder)}
        sets |= held_out
        sets["en: all held out"] = [each for name, some in held_out.items() if "tuned" not in name for each in some]
    print(f"{'prompts':38} {'n':>4} {'recall':>7} {'precision':>9} {'at 0':>6}")
    for name, prompts in sets.items():
        usual, cold = count(prompts), count(prompts, temperature=0.0)
        print(
            f"{name:38} {usual.prompts:4} {_share(usual.recall):>7} {_share(usual.precision):>9} "
            f"{_share(cold.precision):>6}"
        )


def count(prompts: Iterable[Prompt], temperature: float | None = None) -> Counts:
    """`temperature` is for all of them, None for each kind's usual one."""
    judged = [(prompt.is_sensitive, verdict(prompt, temperature) is Verdict.SENSITIVE) for prompt in prompts]
    return Counts(
        prompts=len(judged),
        sensitive=sum(is_sensitive for is_sensitive, _ in judged),
        told=sum(told for _, told in judged),
        right=sum(is_sensitive and told for is_sensitive, told in judged),
    )


def verdict(prompt: Prompt, temperature: float | None = None) -> Verdict:
    policy = Policy()
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": prompt.text}],
        "temperature": TEMPERATURES[prompt.kind] if temperature is None else temperature,
        "max_tokens": 512,
    }
    ask = parse(HttpRequest("POST", "/v1/chat/completions", {}, json.dumps(body).encode()), policy)
    assert isinstance(ask, Ask)
    return compile_rules(policy.sensitivity).classify(ask, 512).verdict


def own_prompts(path: Path) -> Iterator[Prompt]:
    return (Prompt(row["text"], row["kind"]) for row in _rows(path))


def english(folder: Path) -> Iterator[tuple[str, Iterable[Prompt]]]:
    yield (
        "en: MT-bench (word lists tuned on it)",
        (
            Prompt(row["turns"][0], MT_BENCH_KINDS.get(row["category"], row["category"]))
            for row in _rows(folder / "mt_bench_questions.jsonl")
        ),
    )
    yield "en: GSM8K", (Prompt(row["question"], "math") for row in _rows(folder / "gsm8k_train_150.jsonl"))
    yield "en: HumanEval", (Prompt(row["prompt"], "code") for row in _rows(folder / "humaneval_40.jsonl"))
    kinds = {index: kind for kind, indexes in ALPACA_KINDS.items() for index in indexes}
    yield (
        "en: Alpaca seeds",
        (
            Prompt(f"{row['instruction']}\n{row['instances'][0]['input']}", kinds.get(index, "knowledge"))
            for index, row in enumerate(_rows(folder / "alpaca_seed_60.jsonl"))
        ),
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
