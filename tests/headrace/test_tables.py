"""Tables for people: every word in a pipe, and no word taken for markup."""

from __future__ import annotations

import re

import pytest

from headrace import console, explanation, status_lines, tables
from headrace_protos.headrace.v1 import admin_pb2, calibration_pb2, decision_pb2, fleet_pb2, node_pb2

LONG = "a-model-with-a-rather-long-name/of/several/parts-" * 3


def test_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    spec = node_pb2.NodeSpec(
        node_id="[red]n", address="[fd00::7]:8000", models=[node_pb2.ServedModel(id=LONG, format="fp16")]
    )
    load = node_pb2.LoadReport(running=3, waiting=1, kv_cache_use=0.5)
    tables.show_nodes(
        [
            fleet_pb2.Node(spec=spec, ready=True, load=load, pools=[LONG]),
            fleet_pb2.Node(spec=spec, draining=True),
            fleet_pb2.Node(spec=spec),
        ]
    )
    out = capsys.readouterr().out
    assert out.count("[fd00::7]:8000") == 3
    assert out.count("[red]n") == 3
    assert f"{LONG} fp16" in out
    for word in ("ready", "draining", "unhealthy", "50%"):
        assert word in out


def test_decisions(capsys: pytest.CaptureFixture[str]) -> None:
    decision = decision_pb2.Decision(model=LONG, pool=LONG, reasons=["session_pinned", "spilled_under_load"])
    outcome = decision_pb2.Outcome(status=200, upstream="[fd00::7]:8000", prompt_tokens=5, duration_seconds=1.25)
    tables.show_decisions(
        [
            decision_pb2.RecordedDecision(decision=decision, outcome=outcome),
            decision_pb2.RecordedDecision(outcome=decision_pb2.Outcome(flags=["downstream_connection_termination"])),
        ]
    )
    out = capsys.readouterr().out
    for word in ("[fd00::7]:8000", "session_pinned, spilled_under_load", "1250 ms", "5+0", "the filter was not asked"):
        assert word in out
    assert "client left downstream_connection_termination" in out


def test_a_decision_is_one_line_whatever_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    decision = decision_pb2.Decision(model=LONG, pool=LONG, reasons=["session_pinned", "spilled_under_load"])
    outcome = decision_pb2.Outcome(status=200, upstream="[fd00::7]:8000", prompt_tokens=5, duration_seconds=1.25)
    console.show_line(tables.decision(decision_pb2.RecordedDecision(decision=decision, outcome=outcome)), markup=True)
    console.show_line(tables.decision(decision_pb2.RecordedDecision()), markup=True)
    console.show_line('{"model": "[red]x"}', markup=False)
    first, second, third = capsys.readouterr().out.splitlines()
    for word in (LONG, "[fd00::7]:8000", "session_pinned, spilled_under_load", "1250 ms", "tokens 5+0", "200"):
        assert word in first
    assert "the filter was not asked" in second
    assert third == '{"model": "[red]x"}'


def test_the_ledger_is_shown_with_what_it_lost(capsys: pytest.CaptureFixture[str]) -> None:
    ledger = fleet_pb2.LedgerStatus(store="postgresql://h@db/x", trouble="gone", waiting=7, lost={"queue_full": 3})
    status_lines.show_status(fleet_pb2.GetStatusResponse(ledger=ledger))
    assert "postgresql://h@db/x: 0 written, away, 7 wait, 3 lost: queue_full\n" in capsys.readouterr().out
    ledger.unrecorded.MergeFrom(fleet_pb2.Unrecorded(decisions=9, overdue=4))
    status_lines.show_status(fleet_pb2.GetStatusResponse(ledger=ledger))
    assert "3 lost: queue_full, 4 never recorded, 5 not yet recorded\n" in capsys.readouterr().out


def test_bounds_are_shown_with_what_others_would_save(capsys: pytest.CaptureFixture[str]) -> None:
    same = fleet_pb2.ContextBounds(model="a", in_force=[8192], suggested=[8192], saving_in_force=0.3, requests=1200)
    better = fleet_pb2.ContextBounds(model="b", in_force=[8192], suggested=[4096], saving=0.4, saving_in_force=0.3)
    divided = fleet_pb2.ContextBounds(
        model="c", in_force=[8192], suggested=[8192], engines=[2, 6], suggested_engines=[5, 2], requests=1200
    )
    left = fleet_pb2.ContextBounds(
        model="d", in_force=[8192], suggested=[4096], saving=0.4, saving_in_force=0.3, saving_left=0.143
    )
    status_lines.show_status(fleet_pb2.GetStatusResponse(context_bounds=[same, better, divided, left]))
    shown = capsys.readouterr().out
    assert "a: 8192 saves up to 30% of the engines (1200 requests)" in shown
    assert "b: 8192 saves up to 30% of the engines, 4096 would save up to 40% (0 requests)" in shown
    assert "; engines by class: 2 + 6 now, 5 + 2 would do (1200 requests)" in shown
    assert "would save up to 40% (14% of those of today) (0 requests)" in shown


def test_one_class_of_contexts_saves_nothing_and_has_no_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    none = fleet_pb2.ContextBounds(model="a", suggested=[4096], saving=0.4, requests=1200)
    some = fleet_pb2.ContextBounds(model="b", in_force=[8192], saving_in_force=-0.1, requests=1200)
    status_lines.show_status(fleet_pb2.GetStatusResponse(context_bounds=[none, some]))
    shown = capsys.readouterr().out
    assert "a: one class, 4096 would save up to 40% (1200 requests)" in shown
    assert "b: 8192 saves up to 0% of the engines, one class would save up to 0% (1200 requests)" in shown


def test_nodes_that_teach_nothing_are_named_and_many_of_them_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    status_lines.show_status(fleet_pb2.GetStatusResponse(silent_nodes=[f"n{number}" for number in range(12)]))
    shown = capsys.readouterr().out
    assert "n0, n1" in shown
    assert "n9, ..." in shown
    assert "--enable-force-include-usage" in shown


def test_mistakes_stand_out_in_both_lists(capsys: pytest.CaptureFixture[str]) -> None:
    made = decision_pb2.RecordedDecision(misroute="too_small")
    tables.show_decisions([made])
    assert "too_small" in capsys.readouterr().out
    assert "too_small" in tables.decision(made)
    assert "none" not in tables.decision(decision_pb2.RecordedDecision(misroute="none"))


def test_what_is_overridden_stands_out(capsys: pytest.CaptureFixture[str]) -> None:
    load = fleet_pb2.PoolLoad(running=3, waiting=100)
    tables.show_pools([fleet_pb2.Pool(name="[b]p", load=load, overridden=["waiting"]), fleet_pb2.Pool(name="q")])
    out = capsys.readouterr().out
    assert "100 OVERRIDDEN" in out
    assert out.count("OVERRIDDEN") == 1

    alternatives = [
        decision_pb2.Alternative(pool="[b]p", overridden=["waiting"], scores={"room": 0.0}),
        decision_pb2.Alternative(pool="q", scores={"room": 1.0}),
    ]
    decision = decision_pb2.Decision(reasons=["spilled_under_load"], alternatives=alternatives)
    tables.show_decisions([decision_pb2.RecordedDecision(decision=decision)])
    assert "spilled_under_load OVERRIDDEN" in capsys.readouterr().out
    explanation.show_explanation(decision, {"room": 16.0})
    out = capsys.readouterr().out
    assert "[b]p OVERRIDDEN" in out
    assert out.count("OVERRIDDEN") == 1


def test_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show_overrides([admin_pb2.Override(pool="[b]p", waiting=0, kv_cache_use=0.5, seconds_left=59.6)])
    assert capsys.readouterr().out.splitlines()[1].split() == ["[b]p", "-", "0", "50%", "-", "60"]
    tables.show_overrides([])
    assert capsys.readouterr().out.splitlines()[-1] == "none"


def test_a_status_keeps_each_line_whole(capsys: pytest.CaptureFixture[str]) -> None:
    status_lines.show_status(
        fleet_pb2.GetStatusResponse(
            version="1",
            etcd="connected",
            filter_workers=[f"host-{number}:123456" for number in range(12)],
            envoys=[fleet_pb2.EnvoyStatus(node_id="[b]e", rejected_updates=2)],
            conditions=[fleet_pb2.Condition(name="xds_update_rejected", message="why " * 60)],
        )
    )
    lines = capsys.readouterr().out.splitlines()
    assert any(line.endswith("host-10:123456, host-11:123456") for line in lines)
    assert "envoy           [b]e holds nothing yet, 2 updates rejected" in lines
    assert f"xds_update_rejected: {'why ' * 60}".rstrip() in [line.rstrip() for line in lines]


def test_a_status_says_what_the_traffic_is_and_what_quantized_formats_gain(capsys: pytest.CaptureFixture[str]) -> None:
    status_lines.show_status(
        fleet_pb2.GetStatusResponse(
            gains=[
                fleet_pb2.Gain(model="[b]", hardware_class="a100-sxm4", gain=1.8, prior=1.8),
                fleet_pb2.Gain(model="m", gain=1.05, learned=True, prior=1.3, comparable_seconds=900),
            ],
            composition=fleet_pb2.Composition(
                window_seconds=900, requests=200, sensitive=120, neutral=60, tolerant=20, needing_full=164
            ),
        )
    )
    lines = capsys.readouterr().out.splitlines()
    assert "gain            [b] quantized on a100-sxm4: 1.8 times full, expected (0 s at comparable load)" in lines
    assert (
        "gain            m quantized on unknown hardware: 1.05 times full, learned, 1.3 was expected "
        "(900 s at comparable load)" in lines
    )
    assert (
        "traffic         200 requests in 15 min: 60% sensitive, 30% neutral, 10% tolerant; 82% need the full tier"
        in lines
    )


def test_a_status_says_whether_tiers_get_what_they_are_promised(capsys: pytest.CaptureFixture[str]) -> None:
    status_lines.show_status(
        fleet_pb2.GetStatusResponse(
            sla=[
                fleet_pb2.SlaRate(
                    qos_tier="guaranteed",
                    violation_rate=0.02,
                    met=98,
                    violated=2,
                    rejected=7,
                    causes={"first_token": 2},
                ),
                fleet_pb2.SlaRate(qos_tier="standard", met=3, violated=1, not_counted=2, causes={"failed": 1}),
                fleet_pb2.SlaRate(qos_tier="standard", pool="p", met=3),
            ]
        )
    )
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.startswith("sla")]
    assert lines == [
        "sla             guaranteed: 2.0% of 100 violated, 7 rejected (2 first_token)",
        "sla             standard: 1 of 4 violated (1 failed)",
    ]


def test_an_explanation_shows_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    decision = decision_pb2.Decision(
        action="pass",
        endpoint="chat",
        model="llama",
        pool="llama/full",
        pinned="full",
        reasons=["session_pinned"],
        would_change=["a temperature above 0.7"],
    )
    decision.sensitivity.MergeFrom(decision_pb2.Sensitivity(verdict="sensitive", score=2.5))
    decision.sensitivity.contributions.add(name="greedy", points=1.5, why="temperature is 0")
    decision.budget.MergeFrom(decision_pb2.Budget(prompt_tokens=10, output_tokens=20, category="code", ratio=2.5))
    decision.budget.MergeFrom(decision_pb2.Budget(likely_prompt_tokens=8, rests_on="learned", samples=42))
    decision.alternatives.add(pool="llama/full", total=0.75, scores={"room": 0.5})
    decision.alternatives.add(pool="llama/quantized", excluded_by="pin")
    explanation.show_explanation(decision, {})
    out = capsys.readouterr().out
    for word in ("pass: chat of llama goes to llama/full", "sensitive, score 2.5", "+1.5", "temperature is 0"):
        assert word in out
    for word in (
        "10 prompt + 20 output",
        "8 tokens are likely and 1.25 times",
        "learned from 42 requests",
        "0.75",
        "pin",
        "- a temperature above 0.7",
        "pinned to full",
    ):
        assert word in out


def test_waiting_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    waited = decision_pb2.Decision(pool="p", waited_seconds=2.25)
    tables.show_decisions([decision_pb2.RecordedDecision(decision=waited), decision_pb2.RecordedDecision()])
    assert capsys.readouterr().out.count("2250 ms") == 1
    explanation.show_explanation(
        decision_pb2.Decision(action="queue", endpoint="chat", model="m", waits_for=["p", "[b]q"]), {}
    )
    assert "queue: chat of m waits for p or [b]q" in capsys.readouterr().out
    tables.show_pools([fleet_pb2.Pool(name="p", free=0), fleet_pb2.Pool(name="q")])
    _, known, unknown = capsys.readouterr().out.splitlines()
    assert (known.split()[-1], unknown.split()[-1]) == ("0", "?")


def test_nothing_is_said_as_none(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show_pools([])
    assert capsys.readouterr().out.splitlines()[-1] == "none"


def test_what_quiesces_is_shown_with_the_seconds_left(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show_nodes([fleet_pb2.Node(ready=True, quiescing_seconds=12.3)])
    tables.show_pools([fleet_pb2.Pool(name="p", ready_nodes=3, nodes=4, quiescing_nodes=2)])
    out = capsys.readouterr().out
    assert "quiescing 13 s" in out
    assert "3/4, 2 quiescing" in out


def test_the_share_of_answers_that_taught_nothing_of_tokens_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    usage = [
        calibration_pb2.UsageCount(result="learned", requests=30),
        calibration_pb2.UsageCount(result="no_usage", streamed=True, requests=9),
        calibration_pb2.UsageCount(result="implausible", requests=1),
        calibration_pb2.UsageCount(result="failed", requests=500),
    ]
    status_lines.show_status(fleet_pb2.GetStatusResponse(usage=usage))
    out = capsys.readouterr().out
    assert "25% of 40 answered requests taught nothing of tokens: 9 no usage (streamed), 1 implausible" in out


def test_the_marks_of_pools_add_up_and_keep_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    decision = decision_pb2.Decision()
    scores = {"headroom": 0.5, "tier": 1.0, "fidelity": 0.0, "room": 1.0}
    decision.alternatives.add(pool="p", total=24.1, scores=scores)
    decision.alternatives.add(pool="q", excluded_by="other_tier")
    weights = {"headroom": 0.2, "tier": 8.0, "fidelity": 0.02, "room": 16.0}
    for _ in range(3):
        explanation.show_explanation(decision, weights)
        names, most, one, *_ = capsys.readouterr().out.partition("pools:\n")[2].splitlines()
        assert names.split() == ["room", "tier", "headroom"]
        assert most.split() == ["pool", "total", "0", "to", "16", "0", "to", "8", "0", "to", "0.2"]
        assert one.split() == ["p", "24.10", "16.00", "8.00", "0.10"]


POOL = "llama-3.1-8b/quantized/short/on_demand"
RECORDED = decision_pb2.RecordedDecision(
    decision=decision_pb2.Decision(
        model="llama-3.1-8b", pool=POOL, reasons=["tolerant_prefers_quantized", "preference_unknown"]
    ),
    outcome=decision_pb2.Outcome(
        status=503, flags=["downstream_connection_termination"], node_id="gpu-node-17", duration_seconds=1.25
    ),
)
RECORDED.decision.sensitivity.verdict = "tolerant"
RECORDED.decision.budget.prompt_tokens = 1200


@pytest.mark.parametrize(("width", "left_out"), [(80, 10), (120, 5), (170, 0)])
def test_no_cell_is_broken_up_in_a_terminal_of_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, left_out: int
) -> None:
    """`left_out` is how many columns of decisions go at most."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    spec = node_pb2.NodeSpec(node_id="gpu-node-17", address="10.20.30.40:8000", engine="vllm", engine_version="0.11.0")
    spec.models.add(id="llama-3.1-8b", format="int4-awq", max_context=32768, max_sequences=256)
    node = fleet_pb2.Node(spec=spec, ready=True, load=node_pb2.LoadReport(running=3), pools=[POOL])
    pool = fleet_pb2.Pool(
        name=POOL, model="llama-3.1-8b", tier="quantized", formats=["int4-awq"], ready_nodes=2, nodes=3
    )
    lists = {
        "decisions": lambda: tables.show_decisions([RECORDED]),
        "nodes": lambda: tables.show_nodes([node]),
        "pools": lambda: tables.show_pools([pool]),
    }
    for kind, show in lists.items():
        show()
        plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
        lines = plain.splitlines()
        assert all(len(line.rstrip()) <= width for line in lines), (kind, plain)
        for word in {"decisions": ("tolerant", "503"), "nodes": ("gpu-node-17", "ready"), "pools": ("2/3",)}[kind]:
            assert word in plain, plain
        missing = next((line for line in lines if line.startswith("not shown: ")), "")
        if kind == "decisions":
            assert missing.count(",") + bool(missing) <= left_out, plain
            assert len(lines) <= 6, plain


def test_the_store_of_sessions_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    well = fleet_pb2.WorkerStatus(worker_id="a", session_store="redis://s:6379")
    away = fleet_pb2.WorkerStatus(worker_id="b", session_store="redis://s:6379", session_store_trouble="refused")
    for workers, says in (
        ([well], "in redis://s:6379: up"),
        ([well, away], "in redis://s:6379: away for 1 of 2 workers"),
        ([fleet_pb2.WorkerStatus(worker_id="a")], "in each worker's memory"),
    ):
        status_lines.show_status(fleet_pb2.GetStatusResponse(workers=workers))
        assert f"sessions        {says}\n" in capsys.readouterr().out
