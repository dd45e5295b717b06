"""`headrace replay` of decisions in a file, without a control plane."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from controlplane.errors import ConfigurationError, UnavailableError
from headrace.cli import app

RUN = CliRunner()


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text("selection: {}\n")
    return file


def decision(second: int, tenant: str) -> dict[str, object]:
    time = f"2026-11-30T08:00:{second:02}Z"
    return {"request_id": str(second), "time": time, "recorded": time, "decision": {"tenant": tenant}}


def replay(policy: Path, file: Path, *arguments: object) -> Result:
    words = ["replay", policy, "--from", file, "--under", policy, *arguments]
    return RUN.invoke(app, [str(word) for word in words], env={"HEADRACE_CONFIG": ""})


def tenants(result: Result) -> Sequence[str]:
    assert result.exit_code == 0, result.output
    return [tenant["name"] for tenant in json.loads(result.output)["tenants"]]


@pytest.mark.parametrize("form", ["lines", "list", "document"])
def test_decisions_are_read_as_lines_as_a_list_and_as_a_document(form: str, policy: Path, tmp_path: Path) -> None:
    decisions = [decision(1, "acme"), decision(2, "acme")]
    file = tmp_path / "decisions.json"
    match form:
        case "lines":
            file.write_text("\n".join(map(json.dumps, decisions)))
        case "list":
            file.write_text(json.dumps(decisions))
        case _:
            file.write_text(json.dumps({"decisions": decisions}, indent=2))

    result = replay(policy, file, "--json")

    assert tenants(result) == ["acme"]
    assert json.loads(result.output)["overall"]["requests"] == 2


def test_of_many_decisions_the_last_ones_are_taken_in_whatever_order_they_stand(policy: Path, tmp_path: Path) -> None:
    """`headrace decisions` prints the last one first, and with --follow last."""
    decisions = [json.dumps(decision(second, name)) for second, name in enumerate(("first", "second", "last"))]
    for number, lines in enumerate((decisions, decisions[::-1])):
        file = tmp_path / f"{number}.jsonl"
        file.write_text("\n".join(lines))

        assert tenants(replay(policy, file, "-n", 1, "--json")) == ["last"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("TIMESTAMP,ContextTokens", "line 1: is no JSON"),
        ("[4]", "line 1: is no recorded decision"),
        ('{"nodes": []}', "line 1: is no recorded decision: it has no time"),
        ('{"decisions": 4}', "line 1: is no recorded decision: it has no time"),
        ("1" * 5000, "line 1: is no JSON"),
        ('{"time": "soon"}', "line 1: is no recorded decision"),
    ],
)
def test_what_is_no_decision_is_told(text: str, fault: str, policy: Path, tmp_path: Path) -> None:
    file = tmp_path / "decisions.json"
    file.write_text(text)
    result = replay(policy, file)

    assert isinstance(result.exception, ConfigurationError), result.output
    assert fault in str(result.exception)


def test_without_a_control_plane_it_says_how_to_name_the_policy_that_was_in_force(policy: Path, tmp_path: Path) -> None:
    file = tmp_path / "decisions.jsonl"
    file.write_text(json.dumps(decision(1, "acme")))
    words = ["replay", str(policy), "--from", str(file), "--control-plane", "127.0.0.1:1"]
    result = RUN.invoke(app, words, env={"HEADRACE_CONFIG": ""})

    assert isinstance(result.exception, UnavailableError), result.output
    assert "with --under" in str(result.exception)
