"""What is said about the policy, from gaps of known size."""

from __future__ import annotations

from random import Random

from controlplane.model import Verdict
from planner.quality.advice import Advice, advise
from planner.quality.comparing import Finding
from planner.quality.judging import Judged
from planner.quality.measured import Measured
from planner.quality.summary import summarise
from support.evaluation import POLICY, judged, measured


def advice(every: list[Measured]) -> dict[str, Advice]:
    found = advise(summarise(every, Random(1)), [each.judged for each in every], POLICY)
    return {each.category: each for each in found}


def test_sensitive_requests_that_change_more_than_tolerant_ones_are_borne_out(
    programs: list[Judged], stories: list[Judged]
) -> None:
    every = [measured(each, 2, diverged=True) for each in programs]
    found = advice(every + [measured(each, 40, diverged=False) for each in stories])
    for category, verdict, against in (
        ("code", Verdict.SENSITIVE, Verdict.TOLERANT),
        ("writing", Verdict.TOLERANT, Verdict.SENSITIVE),
    ):
        each = found[category]
        assert (each.verdict, each.against, each.finding) == (verdict, against, Finding.BORNE_OUT)
        assert (each.change, each.rules, each.note) == (None, (), "")


def test_a_gap_alone_bears_no_verdict_out(programs: list[Judged], stories: list[Judged]) -> None:
    """What all requests have says nothing of the rules: sensitive ones must have more of it than tolerant ones."""
    found = advice([measured(each, 9, diverged=True) for each in (*programs, *stories)])
    assert {category: each.finding for category, each in found.items()} == {
        "code": Finding.OPEN,
        "writing": Finding.OPEN,
    }
    lonely = advice([measured(each, 9, diverged=True) for each in programs])["code"]
    assert lonely.finding is Finding.OPEN
    assert "no tolerant or neutral request" in lonely.comparison.why_open


def test_tolerant_requests_that_suffer_more_than_sensitive_ones_name_the_weight_that_would_change_it(
    programs: list[Judged], stories: list[Judged]
) -> None:
    every = [measured(each, 40, diverged=True) for each in programs]
    every += [measured(each, 1, diverged=True) for each in stories]
    found = advice(every)["writing"]
    assert (found.verdict, found.finding) == (Verdict.TOLERANT, Finding.CONTRADICTED)
    assert "too lax here" in found.note
    assert found.rules[0].startswith(("hot: ", "creative_words: "))
    assert any("story" in rule for rule in found.rules)
    assert found.change is not None
    # hot -70 and creative_words -60 make -130; above -100 a request is neutral, so either must lose more than 30.
    assert (found.change.setting, found.change.current, found.change.proposed) in {
        ("policy.sensitivity.weights.hot", -70, -35),
        ("policy.sensitivity.weights.creative_words", -60, -25),
    }
    assert (found.change.moved, found.change.requests, found.change.others) == (10, 10, ())


def test_a_change_tells_which_other_requests_it_would_move(programs: list[Judged], stories: list[Judged]) -> None:
    chats = [judged(f"Let us chat about poem number {n}, just for fun.", 0.9, "chat") for n in range(4)]
    assert {each.verdict for each in chats} == {Verdict.TOLERANT}
    every = [measured(each, 40, diverged=True) for each in (*programs, *chats)]
    every += [measured(each, 1, diverged=True) for each in stories]
    change = advice(every)["writing"].change
    assert change is not None
    assert change.others == (("chat", 4),)


def test_sensitive_requests_without_a_gap_could_be_judged_less_strictly(
    programs: list[Judged], stories: list[Judged]
) -> None:
    every = [measured(each, 48, diverged=False) for each in programs]
    every += [measured(each, 2, diverged=True) for each in stories]
    found = advice(every)["code"]
    assert found.finding is Finding.CONTRADICTED
    assert "too strict here" in found.note
    assert found.change is not None
    # greedy 70 and structured_words 60 make 130; below 100 a request is neutral.
    assert (found.change.setting, found.change.proposed) in {
        ("policy.sensitivity.weights.greedy", 35),
        ("policy.sensitivity.weights.structured_words", 25),
    }


def test_few_requests_say_nothing(stories: list[Judged], programs: list[Judged]) -> None:
    every = [measured(each, 1, diverged=True) for each in stories[:4]]
    found = advice(every + [measured(each, 40, diverged=True) for each in programs])
    assert (found["writing"].finding, found["writing"].rules) == (Finding.OPEN, ())
    assert "too few" in found["writing"].comparison.why_open


def test_without_sensitive_requests_there_is_nothing_to_compare_tolerant_ones_with(stories: list[Judged]) -> None:
    found = advice([measured(each, 1, diverged=True) for each in stories])["writing"]
    assert found.finding is Finding.OPEN
    assert "no sensitive request" in found.comparison.why_open


def test_what_was_not_answered_is_open(programs: list[Judged]) -> None:
    assert advice([Measured(programs[0], (), ())])["code"].finding is Finding.OPEN
    assert advice([]) == {}
