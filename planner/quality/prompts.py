"""Prompts of our own, so that an evaluation needs no file: many kinds of task, several languages, at the temperature at
which such tasks are usually asked. They name no model.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from planner.quality.sample import COMPLETIONS, Sample

# ruff: noqa: RUF001 - other scripts have punctuation of their own

_CODE = (
    "Write a Python function that merges two sorted lists into one sorted list. Answer with code only.",
    "Write a SQL query that lists each department with the number of its employees, largest first.",
    "Write a shell command that finds all files over 100 MB below the current folder and prints their sizes.",
    "Fix the bug: def mean(values): return sum(values) / len(values) - 1",
    "Schreibe eine Python-Funktion, die alle Primzahlen unter n zurückgibt.",
    "Écris une fonction JavaScript qui inverse les mots d'une phrase.",
    "用 Python 写一个函数，判断一个字符串是否是回文。",
)
_MATH = (
    "A shop sells pencils at 3 for 2 euros. How much do 21 pencils cost? Reason step by step.",
    "Solve for x, step by step: 5(x - 2) = 3x + 8.",
    "What is 15% of 240, plus a third of 90? Show the calculation.",
    "Un tren recorre 180 km en 2 horas y 15 minutos. ¿Cuál es su velocidad media? Resuelve paso a paso.",
    "Berechne Schritt für Schritt die Fläche eines Dreiecks mit den Seiten 3, 4 und 5.",
    "小明有48个苹果，分给6个朋友后又买了7个。请一步一步计算他现在有几个苹果。",
    "Prove that the product of two odd numbers is odd.",
)
_EXTRACTION = (
    'Extract name, city and year as JSON from: "In 2019 Ms Adeyemi opened her second workshop in Leeds."',
    'List all dates in this text as JSON: "The lease began on 3 May 2021, was renewed on 1 June 2023, ends in 2027."',
    'Classify the sentiment as positive, negative or mixed: "The room was lovely, but the lift never worked."',
    'Gib Firma und Betrag als JSON aus: "Die Nordwind GmbH überwies am Montag 12.400 Euro."',
    'Extrae los productos y precios como JSON: "Compré dos lámparas a 30 euros cada una y una mesa por 120."',
    "次の文から人名と都市名をJSONで抽出してください。「鈴木さんは去年、大阪から札幌へ引っ越しました。」",
)
_REASONING = (
    "Anna is older than Ben, and Ben is older than Carl. Who is the youngest? Explain step by step.",
    "If all bloops are razzies and some razzies are lazzies, must some bloops be lazzies? Reason carefully.",
    "I have a fox, a hen and a bag of corn, and a boat that holds me and one of them. How do I cross the river?",
    "Trois interrupteurs, une ampoule dans une autre pièce : comment trouver le bon en une seule visite ? Explique.",
    "Which weighs more, a litre of water or a litre of oil, and why does it matter when they are mixed?",
    "Warum sieht man den Blitz, bevor man den Donner hört? Erkläre es Schritt für Schritt.",
)
_WRITING = (
    "Write a short story about a clockmaker who repairs other people's memories.",
    "Write a poem about the first snow on a fishing harbour.",
    "Write the opening of a mystery novel that is set in a lighthouse.",
    "Invent a legend that explains why the sea is salty.",
    "Schreibe ein Gedicht über einen Garten im Regen.",
    "Raconte une histoire drôle sur un chat qui veut devenir boulanger.",
    "Escribe un cuento corto sobre un faro que se enamora de la luna.",
    "写一首关于故乡和月亮的诗。",
)
_CHAT = (
    "Hi! I just moved to a new town and do not know anybody yet. Let us chat a little.",
    "Tell me a joke about penguins, please!",
    "What would you do on a rainy Sunday?",
    "Let us role-play: you are a grumpy wizard, and I have come to return your umbrella.",
    "Ich hatte einen langen Tag. Erzähl mir etwas Schönes!",
    "Salut ! Tu préfères la mer ou la montagne, et pourquoi ?",
    "こんにちは！週末のおすすめの過ごし方を教えて。",
)


def _prompts() -> Iterator[Sample]:
    numbers = count(1)
    for category, temperature, texts in (
        ("code", 0.0, _CODE),
        ("math", 0.0, _MATH),
        ("extraction", 0.0, _EXTRACTION),
        ("reasoning", 0.2, _REASONING),
        ("writing", 0.9, _WRITING),
        ("chat", 0.8, _CHAT),
    ):
        for text in texts:
            body: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "temperature": temperature}
            yield Sample(next(numbers), body, category=category)
    body = {"prompt": "Once upon a time, at the edge of a quiet forest,", "temperature": 0.9}
    yield Sample(next(numbers), body, COMPLETIONS, "writing")


PROMPTS: tuple[Sample, ...] = tuple(_prompts())
