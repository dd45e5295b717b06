"""The report as JSON has it, and the sentences about what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.replay.replaying import Doubt, Standing
from planner.replay.summary import Group, Summary

ASSUMPTION = (
    "Load and lines are taken to stay as they were: what the other policy would have spared or added is not simulated."
)
DOUBTS = {
    Doubt.VERDICT: "the verdict: words, or settings of the request, that are not recorded",
    Doubt.PRESSURE: "pressure that is not recorded, or only within bounds",
    Doubt.LOAD: "the load of pools that were left out before it mattered",
    Doubt.GAIN: "what quantized pools gained, where no request that prefers them says",
    Doubt.ARRIVAL: "the pressure when it came, before it waited",
}
STANDINGS = {
    Standing.CERTAIN: "follows from the record",
    Standing.LIKELY: "hangs on what was not recorded; the likelier answer is counted",
    Standing.UNKNOWN: "was decided otherwise than the policy that was in force says; taken to stay as it was",
    Standing.OUTSIDE: "was answered before any pool was looked at, or for its tenant's rate; taken to stay as it was",
}


def document(summary: Summary) -> dict[str, Any]:
    return {
        "assumption": ASSUMPTION,
        "overall": _group(summary.overall),
        "tiers": [_group(group) for group in summary.tiers],
        "tenants": [_group(group) for group in summary.tenants],
        "doubts": {str(doubt): count for doubt, count in summary.doubts},
        "not_replayed": list(summary.blind),
    }


def notes(summary: Summary) -> Iterator[str]:
    """What a reader has to know of the numbers."""
    yield ASSUMPTION
    if not summary.policies_differ:
        yield "Both policies are the same."
    for standing, words in STANDINGS.items():
        if count := summary.overall.standings[standing]:
            yield f"{count} of {summary.overall.requests} ({standing}): {words}"
    for doubt, count in summary.doubts:
        yield f"{count} would change otherwise by {DOUBTS[doubt]}"
    if summary.blind:
        yield f"These settings differ and no record tells what they change: {', '.join(summary.blind)}"


def _group(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "requests": group.requests,
        "would_change": group.changed,
        "would_change_for_certain": group.changed_for_certain,
        "standings": {str(standing): group.standings[standing] for standing in Standing},
        "actions": [
            {"from": str(was), "to": str(now), "requests": count} for (was, now), count in sorted(group.actions.items())
        ],
        "pools": [{"from": was, "to": now, "requests": count} for (was, now), count in sorted(group.pools.items())],
        "tokens": {
            "used": group.tokens_used,
            "saved_by_caps": group.tokens_saved,
            "rejected": group.tokens_rejected,
            "admitted": group.tokens_admitted,
        },
        "sla": {
            "judged": group.judged,
            "violated": group.violated,
            "violated_of_rejected": group.violated_rejected,
            "violated_of_degraded": group.violated_degraded,
            "met_of_rejected": group.met_rejected,
            "violated_by_the_other_targets": group.violated_now,
        },
    }
