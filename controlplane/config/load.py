"""Settings and policies from text, and back. Reads and writes no file.

A fault is `name:line: dotted.path: what is wrong; what to do`, and all of them are found at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import yaml
from pydantic import ValidationError

from controlplane.config.document import BOOL, FLOAT, INT, NULL, Document, Fault, Path, spell
from controlplane.config.identity_rules import IDENTITY_RULES
from controlplane.config.policy_rules import POLICY_RULES, join_words, part_words
from controlplane.config.reader import check, read, to_plain
from controlplane.config.report import broken, conclude, open_document
from controlplane.config.rules import SETTINGS_RULES
from controlplane.config.settings import Settings
from controlplane.errors import ConfigurationError
from controlplane.policy.settings import Policy, TenantRules

_WIDTH = 110
_WORDS: Path = ("sensitivity", "words")
_POLICY: Path = ("policy",)
_NO_SETTING = Fault(1, (), "it states no setting; `headrace policy reset` restores the configured policy")
_NO_TENANTS = Fault(
    1,
    (),
    "it states no tenants, and would let go those in force; begin with what `headrace policy get` prints, or state "
    "`tenants: {}`",
)
_CONFIGURATION = "this is a configuration; a policy is what stands under `policy:`, without that line"


def load(text: str, name: str) -> Settings:
    """Settings from the YAML of a file called `name`; what it leaves out takes the defaults.

    Raises ConfigurationError with every fault, in the order of lines.
    """
    document = open_document(text, name)
    settings, faults = read(Settings, document)
    if settings is not None:
        if document.has(("policy", *_WORDS)):
            settings = replace(settings, policy=join_words(settings.policy))
        faults += broken((*SETTINGS_RULES, *IDENTITY_RULES), settings, document, faults)
        faults += broken(POLICY_RULES, settings.policy, document, faults, ("policy",))
    return conclude(settings, name, document, faults)


def load_unheld(text: str, name: str) -> Settings:
    """As `load`, but held against no rules: for what is needed to make settings that keep them."""
    document = open_document(text, name)
    settings, faults = read(Settings, document)
    return conclude(settings, name, document, faults)


def load_policy(text: str, name: str) -> Policy:
    """A policy from YAML of the shape of the `policy` section. Raises ConfigurationError as `load` does, and for a text
    without any setting: what failed to be written must not replace what is in force by defaults."""
    return _policy(open_document(text, name), name)


def load_policy_in_place_of(in_force: Policy, text: str, name: str) -> Policy:
    """As `load_policy`. A policy replaces the other one whole, so one that says nothing of tenants where the one in
    force does is refused too: it would let everybody in, and everybody's limits go."""
    document = open_document(text, name)
    keeps_tenants = in_force.tenants == TenantRules() or document.has(("tenants",))
    return _policy(document, name, () if keeps_tenants else (_NO_TENANTS,))


def _policy(document: Document, name: str, more: Iterable[Fault] = ()) -> Policy:
    if not document.states_anything:
        return conclude(None, name, document, (_NO_SETTING,))
    if document.has(_POLICY):
        return conclude(None, name, document, (Fault(document.line(_POLICY), (), _CONFIGURATION),))
    policy, faults = read(Policy, document)
    if policy is not None:
        if document.has(_WORDS):
            policy = join_words(policy)
        faults += broken(POLICY_RULES, policy, document, faults)
    return conclude(policy, name, document, [*faults, *more])


def load_policy_beside(settings: Settings, text: str, name: str) -> Policy:
    """As `load_policy`, for a policy that replaces that of the settings: who is known by what must fit them too."""
    policy = load_policy(text, name)
    whole = replace(settings, policy=policy)
    faults = [f"{name}: {spell(found.paths[0])}: {found.message}" for rule in IDENTITY_RULES for found in rule(whole)]
    if faults:
        raise ConfigurationError(faults)
    return policy


def dump(value: Settings | Policy) -> str:
    """YAML with every setting; `load` or `load_policy` gives the same value again."""
    match value:
        case Settings():
            tree = to_plain(replace(value, policy=part_words(value.policy)))
        case Policy():
            tree = to_plain(part_words(value))
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)


def policy_to_json(policy: Policy) -> bytes:
    """JSON with every setting; `policy_from_json` gives the same policy again."""
    return json.dumps(to_plain(policy), ensure_ascii=False, separators=(",", ":")).encode()


def policy_from_json(data: bytes) -> Policy:
    """The policy of `policy_to_json`. Raises ConfigurationError when it is of another shape, as of another version."""
    try:
        return check(Policy, b"[" + data + b"]")
    except ValidationError as error:
        faults = [f"policy JSON: {spell(tuple(each['loc'][1:]))}: {each['msg']}" for each in error.errors()]
        raise ConfigurationError(faults) from None


class _Dumper(yaml.SafeDumper):
    """Quotes what the core schema, by which `document` reads, would take for something else than text."""

    yaml_implicit_resolvers = {}  # noqa: RUF012

    def ignore_aliases(self, data: object) -> bool:
        return True

    def represent_list(self, data: list[object]) -> yaml.Node:  # type: ignore[override]
        """Lists of plain values stand in one line, lists of sections do not."""
        plain = not any(isinstance(item, (list, dict)) for item in data)
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=plain)

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """PyYAML writes Unicode's line breaks and byte order marks as they are, and then reads them as blanks."""
        style = '"' if any(character in "\x85\u2028\u2029\ufeff" for character in data) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(list, _Dumper.represent_list)
_Dumper.add_representer(str, _Dumper.represent_str)

for _tag, _pattern in (("null", NULL), ("bool", BOOL), ("int", INT), ("float", FLOAT)):
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, None)
