"""The example file states every setting, and each with its default."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path

from controlplane.config.document import parse, spell
from controlplane.config.load import load
from controlplane.config.reader import leaves
from controlplane.config.settings import Settings
from controlplane.policy.qos import Mode

EXAMPLE = Path(__file__).parents[3] / "docs" / "headrace.example.yaml"
TUNED = EXAMPLE.with_name("qos.tuned.yaml")
# Thousands of words, which a copied file would freeze.
LEFT_OUT = {"policy.sensitivity.words", "policy.sensitivity.words_version"}


def value_at(settings: Settings, path: tuple[str | int, ...]) -> object:
    return reduce(getattr, map(str, path), settings)


def test_the_example_equals_the_defaults() -> None:
    stated, defaults = load(EXAMPLE.read_text(encoding="utf-8"), EXAMPLE.name), Settings()
    differing = {
        spell(path): value_at(defaults, path)
        for path in leaves(Settings)
        if value_at(stated, path) != value_at(defaults, path)
    }
    assert differing == {}
    assert stated == defaults


def test_the_example_states_every_setting_but_the_word_lists() -> None:
    document = parse(EXAMPLE.read_text(encoding="utf-8"))
    assert {spell(path) for path in leaves(Settings) if not document.has(path)} == LEFT_OUT


def test_the_commented_words_of_the_example_are_valid_and_add_to_the_defaults() -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if "# words_version:" in line)
    end = next(number for number, line in enumerate(lines) if "weak:" in line)
    lines[start : end + 1] = [line.replace("# ", "", 1) for line in lines[start : end + 1]]
    sensitivity = load("\n".join(lines), EXAMPLE.name).policy.sensitivity
    defaults = Settings().policy.sensitivity
    assert sensitivity.words_version == "acme-1"
    assert sensitivity.words[0].words == ("terraform", "stored procedure")
    assert sensitivity.words[1:] == defaults.words


def test_the_tuned_table_of_qos_can_be_used_and_governs() -> None:
    tuned, default = load(TUNED.read_text(encoding="utf-8"), TUNED.name).policy.qos, Settings().policy.qos
    assert tuned.mode is Mode.ENABLED
    assert tuned.best_effort.critical_at == replace(default.best_effort.critical_at, kv_cache_use=None)
    assert tuned.guaranteed == default.guaranteed
