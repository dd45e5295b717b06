"""What quantized formats gain on a node's hardware, and how fast nodes are: as learned, else as the policy expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.model import FormatTier
from controlplane.policy.settings import GainRules


@dataclass(frozen=True, slots=True)
class LearnedGain:
    """`value` is how many times faster quantized nodes decode than full ones of the same hardware class, at comparable
    load; None until enough is known. `seconds` is how much is known: time that both sides decoded at comparable load.
    """

    value: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Speeds:
    """How fast one sequence decodes on hardware classes of one model and tier, compared with the `reference` class at
    comparable load. Classes of which too little is known are left out of `relative`, and so is the reference.
    """

    reference: str
    relative: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Learned:
    """What load reports have told: `gains` by model and hardware class, `speeds` by model and tier."""

    gains: Mapping[tuple[str, str], LearnedGain] = field(default_factory=dict)
    speeds: Mapping[tuple[str, FormatTier], Speeds] = field(default_factory=dict)


NOTHING_LEARNED = Learned()


def prior_gain(hardware_class: str, rules: GainRules) -> float:
    """What the policy expects of a hardware class. Only the same name counts: half a name is other hardware."""
    wanted = hardware_class.lower()
    return next((entry.gain for entry in rules.priors if entry.hardware_class.lower() == wanted), rules.default)


def expected_gain(model: str, hardware_class: str, learned: Learned, rules: GainRules) -> float:
    known = learned.gains.get((model, hardware_class))
    return prior_gain(hardware_class, rules) if known is None or known.value is None else known.value


def speed_of(model: str, tier: FormatTier, hardware_class: str, learned: Learned, rules: GainRules) -> float:
    """How fast one sequence decodes, compared with other hardware classes of the same model and tier.

    Where that is not learned, classes are expected to be alike but for what quantized formats gain on them.
    """
    speeds = learned.speeds.get((model, tier))
    if speeds is not None and hardware_class in speeds.relative:
        return speeds.relative[hardware_class]
    if tier is FormatTier.FULL:
        return 1.0
    gain = expected_gain(model, hardware_class, learned, rules)
    return gain if speeds is None else gain / expected_gain(model, speeds.reference, learned, rules)
