"""The decisions that are kept: the newest, up to a bound."""

from __future__ import annotations

from controlplane.ledger.recent import RecentDecisions
from headrace_protos.headrace.v1 import decision_pb2


def recorded(request_id: str, model: str = "llama", pool: str = "p") -> decision_pb2.RecordedDecision:
    decision = decision_pb2.Decision(model=model, pool=pool)
    return decision_pb2.RecordedDecision(request_id=request_id, decision=decision)


def ids(found: list[decision_pb2.RecordedDecision]) -> list[str]:
    return [each.request_id for each in found]


def test_the_newest_come_first_and_the_oldest_give_way() -> None:
    recent = RecentDecisions(3)
    for number in range(5):
        recent.add(recorded(str(number)))
    assert len(recent) == 3
    assert ids(recent.newest(10)) == ["4", "3", "2"]
    assert ids(recent.newest(2)) == ["4", "3"]
    assert ids(recent.newest(0)) == []


def test_the_limit_counts_those_that_match() -> None:
    recent = RecentDecisions(10)
    recent.add(recorded("a", model="llama", pool="one"))
    recent.add(recorded("b", model="llama", pool="two"))
    recent.add(recorded("c", model="qwen", pool="three"))
    assert ids(recent.newest(1, model="llama")) == ["b"]
    assert ids(recent.newest(5, pool="one")) == ["a"]
    assert ids(recent.newest(5, model="qwen", pool="one")) == []
