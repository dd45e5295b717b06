"""Whatever the text: settings or a ConfigurationError; whatever the settings: YAML and JSON give them back."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controlplane.config.document import MAX_CHARACTERS, MAX_DEPTH, MAX_VALUES
from controlplane.config.load import dump, load, load_policy, policy_from_json, policy_to_json
from controlplane.config.reader import leaves
from controlplane.config.settings import GatewaySettings, Settings
from controlplane.errors import ConfigurationError
from controlplane.policy.settings import ContextClass, EstimationRules, Policy, SensitivityRules
from controlplane.policy.words import DEFAULT_WORDS, Topic, WordList

NAMES = [*sorted({str(step) for path in leaves(Settings) for step in path}), "<<", "", "no", "x y"]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["127.0.0.1:9090", "[::]:1", "unix:/a", "30s", "10MiB", "info", "0.0.0.0:0", "a" * 300])
)
trees: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=30,
)
# Bits of syntax, for texts that are nearly YAML.
PIECES = [
    *"{}[],:-'\"\\|>#@`é1~",
    "gateway",
    "words",
    "&a ",
    "*a",
    "!!",
    "! ",
    "%YAML",
    "---",
    "...",
    "<<",
    "0x",
    "1e999",
]
BREAKS = ["\n", "\n  ", "\t", " ", "\x85", "\u2028", "\ufeff", ": ", "- ", "? ", "\\UFFFFFFFF", "\\ud800"]
pieces = st.lists(st.sampled_from([*PIECES, *BREAKS]), max_size=30).map("".join)


def settings_or_faults(text: str) -> None:
    try:
        assert isinstance(load(text, "h.yaml"), Settings)
    except ConfigurationError as error:
        lines = len(re.split(r"\r\n|[\n\r\x85\u2028\u2029]", text))
        for fault in error.faults:
            line = re.match(r"h\.yaml:(\d+): \S", fault)
            assert line is not None
            assert 1 <= int(line[1]) <= lines
            assert "\n" not in fault


@given(st.text() | pieces)
@settings(max_examples=300, deadline=None)
@example('"\\UFFFFFFFF"')
@example('{"\\ud800": 1}')
@example("%YAML " + "1" * 5000 + ".1\n---\n")
@example("? [a]\n: b")
@example("&a [*a]")
@example("a: *b")
@example("*a : b")
@example("&a")
@example("1" * 5000)
@example("cluster: !<x> y")
@example("\r\r\n\x85a: [")
def test_any_text_gives_settings_or_faults_with_lines(text: str) -> None:
    settings_or_faults(text)


@given(trees)
@settings(max_examples=200, deadline=None)
def test_any_tree_gives_settings_or_faults_with_lines(tree: Any) -> None:
    settings_or_faults(yaml.safe_dump(tree, allow_unicode=True))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000,
        "{a: " * 10_000,
        "- " * 10_000,
        "? " * 10_000,
        "<<: {" * 10_000,
        "".join(" " * depth + "a:\n" for depth in range(MAX_DEPTH + 2)),
        "a: &a0 [x]\n" + "".join(f"b{n}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(60)),
        "- x\n" * (MAX_VALUES + 1),
        "# \n" * MAX_CHARACTERS,
    ],
    ids=["lists", "maps", "items", "keys", "merges", "blocks", "bomb", "values", "length"],
)
def test_texts_made_to_cost_much_are_refused(text: str) -> None:
    settings_or_faults(text)
    with pytest.raises(ConfigurationError):
        load(text, "h.yaml")


words = st.text(st.characters(exclude_categories=["Cs"]))
word_lists = st.builds(
    WordList,
    st.sampled_from(Topic),
    st.sampled_from(["en", "de", "zh", "x"]),
    st.tuples(words) | st.tuples(words, words),
    st.just(()) | st.tuples(words),
)
policies = st.builds(
    lambda model, lists, ratio, bounds: Policy(
        default_model=model,
        sensitivity=SensitivityRules(words=tuple(lists)),
        estimation=EstimationRules(gamma=ratio),
        context_classes=(*(ContextClass(f"c{bound}", bound) for bound in sorted(bounds)), ContextClass("last")),
    ),
    st.none() | words.filter(bool),
    st.lists(word_lists, max_size=4),
    st.floats(min_value=0, max_value=16, exclude_min=True),
    st.sets(st.integers(min_value=1), max_size=3),
)


@given(policies)
@settings(max_examples=50, deadline=None)
@example(Policy())
@example(Policy(sensitivity=SensitivityRules(words=DEFAULT_WORDS[1:])))
@example(
    Policy(
        sensitivity=SensitivityRules(
            words=(WordList(Topic.CODE, "x", ("no", "0o17", "1e3", "12:30", "<<", "~", "\x85a", "\u2028", "\ufeff")),)
        )
    )
)
def test_a_policy_survives_yaml_and_json(policy: Policy) -> None:
    assert load_policy(dump(policy), "p.yaml") == policy
    assert policy_from_json(policy_to_json(policy)) == policy


@settings(max_examples=10, deadline=None)
@given(policies, st.floats(min_value=0, max_value=299))
def test_settings_survive_yaml(policy: Policy, wait: float) -> None:
    whole = Settings(policy=policy, gateway=GatewaySettings(max_wait=wait))
    assert load(dump(whole), "h.yaml") == whole


def test_a_policy_of_another_shape_is_refused() -> None:
    for data in (b"", b"{", b"[]", b'{"nonsense": 1}', b"\xff"):
        with pytest.raises(ConfigurationError, match="policy JSON"):
            policy_from_json(data)
