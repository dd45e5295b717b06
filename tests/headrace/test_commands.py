"""The command line without a fleet: explaining offline, checking files, and what it says when something is wrong."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from controlplane.etcd.server import free_ports
from controlplane.policy.access import key_digest
from headrace.cli import main
from support.system import Ended

Run = Callable[..., Ended]

FLEET = """
- node_id: full-1
  address: 10.0.0.1:8000
  models: [{id: llama, format: bf16, max_context: 8192, max_sequences: 64}]
- node_id: small-1
  address: 10.0.0.2:8000
  models: [{id: llama, format: int4-awq, max_context: 8192, max_sequences: 8}]
"""
STORY = (
    b'{"model": "llama", "temperature": 0.9, "messages": [{"role": "user", "content": "Tell a story of a dragon."}]}'
)
FULL, QUANTIZED = "llama/full/short/on_demand", "llama/quantized/short/on_demand"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process."""
    for name in ("HEADRACE_CONFIG", "HEADRACE_CONTROL_PLANE", "HEADRACE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object, stdin: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "argv", ["headrace", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = 0
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Ended(status, captured.out, captured.err)

    return run


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET)
    return file


def test_version_and_help(run: Run) -> None:
    assert run("--version").out.startswith("headrace ")
    shown = run("--help")
    assert shown.status == 0
    for command in (
        "up",
        "nodes",
        "pools",
        "decisions",
        "status",
        "explain",
        "drain",
        "policy",
        "override",
        "calibration",
        "evaluate",
        "replay",
        "config",
        "node",
    ):
        assert command in shown.out


def test_a_command_imports_only_what_it_needs() -> None:
    """Each has to be told apart in a process of its own: this one has imported everything."""
    heavy = {
        "headrace.cli": ("grpc", "pydantic", "httpx"),
        "headrace.commands.node": ("controlplane.services", "controlplane.publisher"),
    }
    for module, not_needed in heavy.items():
        code = f"import sys, {module}; print(*(name for name in {not_needed!r} if name in sys.modules))"
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (ended.stdout.strip(), ended.stderr) == ("", ""), module


@pytest.mark.parametrize("option", ["--json", "--control-plane=127.0.0.1:1"])
def test_options_of_the_calibrations_table_are_not_dropped_silently(run: Run, option: str) -> None:
    ended = run("calibration", option, "reset", "llama")
    assert ended.status == 2
    assert "write options after `reset`, not before it" in ended.err


# --- explain -------------------------------------------------------------------------------------------------------


def test_a_request_is_explained_offline(run: Run, fleet: Path, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_bytes(STORY)
    for ended in (
        run("explain", body, "--fleet", fleet),
        run("explain", "-", "--fleet", fleet, stdin=STORY),
        run("explain", "--fleet", fleet, stdin=STORY),
    ):
        assert ended.status == 0
        assert f"pass: chat of llama goes to {QUANTIZED}" in ended.out
        assert "tolerant_prefers_quantized" in ended.out
        assert FULL in ended.out


def test_an_explanation_in_json_has_every_part(run: Run, fleet: Path) -> None:
    decision = json.loads(run("explain", "--fleet", fleet, "--json", stdin=STORY).out)
    assert decision["pool"] == QUANTIZED
    assert decision["sensitivity"]["contributions"]
    assert decision["budget"]["prompt_tokens"] > 0
    assert {alternative["pool"] for alternative in decision["alternatives"]} == {FULL, QUANTIZED}


def test_the_policy_of_a_configuration_decides(run: Run, fleet: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("policy: {context_classes: [{name: tiny, max_context: 100}, {name: all}]}\n")
    ended = run("explain", "--fleet", fleet, "-c", config, "--json", stdin=STORY)
    assert json.loads(ended.out)["pool"] == "llama/quantized/all/on_demand"


def test_headers_and_path_count(run: Run, fleet: Path) -> None:
    ended = run(
        "explain", "--fleet", fleet, "--path", "/v1/completions", "-H", "X-Session-Id: 7", "--json", stdin=STORY
    )
    assert json.loads(ended.out)["endpoint"] == "completions"


def test_a_request_is_explained_as_of_a_pinned_session(run: Run, fleet: Path) -> None:
    session = ("-H", "x-session-id: 7")
    new = run("explain", "--fleet", fleet, *session, stdin=STORY)
    assert f"it would go to {FULL} if pinned to full, see --pinned" in new.out
    pinned = run("explain", "--fleet", fleet, *session, "--pinned", "full", stdin=STORY)
    assert f"goes to {FULL}" in pinned.out
    assert "session_pinned" in pinned.out
    assert "not looked up" not in pinned.out
    assert run("explain", "--fleet", fleet, "--pinned", "int4", stdin=STORY).status == 2


def test_a_request_is_explained_as_of_a_tenant_whose_key_cannot_be_checked_here(
    run: Run, fleet: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"ext_proc: {{key_secret_file: {tmp_path / 'secret'}}}\n"
        "policy: {tenants: {required: true, known: [{name: acme, qos_tier: guaranteed, keys: ['" + "a" * 64 + "']}]}}\n"
    )
    asked = ("explain", "--fleet", fleet, "-c", config, "-H", "Authorization: Bearer hr-1")
    assert "ask as a tenant by --tenant NAME" in run(*asked, stdin=STORY).out
    decision = json.loads(run(*asked, "--tenant", "acme", "--json", stdin=STORY).out)
    assert (decision["tenant"], decision["qos_tier"], decision["pool"]) == ("name:acme", "guaranteed", QUANTIZED)


@pytest.mark.parametrize("body", [b"{", b"", b"[1]", b"\xff\xfe"])
def test_a_bad_body_is_explained_as_the_refusal_that_it_gets(run: Run, fleet: Path, body: bytes) -> None:
    ended = run("explain", "--fleet", fleet, stdin=body)
    assert ended.status == 0
    assert "reject: " in ended.out
    assert "400 " in ended.out
    assert json.loads(run("explain", "--fleet", fleet, "--json", stdin=body).out)["refusal"]["status"] == 400


@pytest.mark.parametrize("header", ["x-session-id", ": 7", "", "  : 7"])
def test_a_bad_header_is_a_usage_error(run: Run, fleet: Path, header: str) -> None:
    ended = run("explain", "--fleet", fleet, "-H", header, stdin=STORY)
    assert ended.status == 2
    assert "is no header" in ended.err
    assert "--header" in ended.err


def test_files_that_are_not_there_are_named(run: Run, fleet: Path, tmp_path: Path) -> None:
    none = tmp_path / "none"
    told = f"{none}: cannot be read: No such file or directory\n"
    for arguments in (
        ("explain", none, "--fleet", fleet),
        ("explain", "--fleet", none),
        ("explain", "--fleet", fleet, "-c", none),
        ("config", "check", none),
        ("nodes", "-c", none),
        ("policy", "set", none),
        ("up", "-c", none),
    ):
        ended = run(*arguments, stdin=STORY)
        assert (ended.status, ended.err) == (2, told), arguments


def test_a_fleet_file_is_refused_with_every_fault_and_its_line(run: Run, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET.replace("10.0.0.1:8000", "nowhere").replace("max_context: 8192, max_sequences: 8", "x: 1"))
    ended = run("explain", "--fleet", fleet, stdin=STORY)
    assert ended.status == 2
    lines = {int(line.removeprefix(f"{fleet}:").partition(":")[0]) for line in ended.err.splitlines()}
    assert lines == {3, 7}


# --- config check --------------------------------------------------------------------------------------------------


def test_a_good_configuration_is_good(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("cluster: prod\n")
    ended = run("config", "check", config)
    assert (ended.status, ended.out, ended.err) == (0, f"{config}: good\n", "")


def test_formats_that_are_nearly_usual_ones_are_doubted_and_others_are_not(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("policy: {formats: {full: [fp61, bf16, gguf-bf16-x], quantized: [acme-4bit, int4-awq]}}\n")
    ended = run("config", "check", config)
    warning = f"{config}: warning: policy.formats.full: fp61 is no usual format; did you mean fp16?\n"
    assert (ended.status, ended.out, ended.err) == (0, f"{config}: good\n", warning)


def test_every_fault_of_a_configuration_is_told_with_its_line(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("cluster: Prod!\ngateway:\n  address: nowhere\nno_such: 1\n")
    ended = run("config", "check", config)
    assert (ended.status, ended.out) == (2, "")
    assert [line.split(" ")[0] for line in ended.err.splitlines()] == [f"{config}:1:", f"{config}:3:", f"{config}:4:"]


@pytest.mark.parametrize("text", ["cluster: [", "\tcluster: x", "- a\n- b\n", "a: 1\na: 2\n"])
def test_what_is_no_configuration_is_told_with_its_line(run: Run, tmp_path: Path, text: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text)
    ended = run("config", "check", config)
    assert ended.status == 2
    assert ended.err.startswith(f"{config}:")


def test_a_file_that_is_no_text_is_told(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_bytes(b"\xff\xfe\x00")
    ended = run("config", "check", config)
    assert ended.status == 2
    assert f"{config}: is not UTF-8 text" in ended.err
    assert run("config", "check", tmp_path).status == 2


def test_a_control_plane_without_etcd_says_what_to_do(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("cluster: prod\n")
    ended = run("controlplane", "-c", config)
    told = "etcd.endpoints: name one, or use `headrace up`, which runs an etcd of its own\n"
    assert (ended.status, ended.err) == (2, told)


# --- without a control plane ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ("nodes",),
        ("pools", "--json"),
        ("decisions",),
        ("decisions", "--follow", "--json"),
        ("status", "--json"),
        ("drain", "n"),
        ("policy", "get"),
        ("policy", "reset"),
        ("override", "set", FULL, "--waiting", "1", "--for", "10m"),
        ("override", "list", "--json"),
        ("override", "clear", FULL),
        ("explain", "-"),
    ],
)
def test_a_control_plane_that_is_not_there_is_named_with_what_to_do(run: Run, command: tuple[str, ...]) -> None:
    (port,) = free_ports(1)
    ended = run(*command, "--control-plane", f"127.0.0.1:{port}", stdin=STORY)
    assert (ended.status, ended.out) == (1, "")
    first, second = ended.err.splitlines()
    assert first.startswith(f"error: the control plane at 127.0.0.1:{port} cannot answer: ")
    assert "Connection refused" in first
    assert second == "start `headrace up` or `headrace controlplane`, or name another with --control-plane"


def test_an_address_that_is_none_is_named(run: Run) -> None:
    ended = run("nodes", "-s", "no-such-host.invalid:50051")
    assert ended.status == 1
    assert "no-such-host.invalid:50051" in ended.err


def test_a_token_file_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    ended = run("nodes", "--token-file", tmp_path / "none")
    assert ended.status == 2
    assert ended.err == f"caller.token_file: {tmp_path / 'none'} cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    "command",
    [
        ("nodes", "--no-such"),
        ("no-such",),
        ("decisions", "-n", "0"),
        ("decisions", "--status", "4x"),
        ("decisions", "--status", "612"),
        ("decisions", "--since", "yesterday"),
        ("decisions", "--until", "10 m ago"),
        ("drain",),
        ("override", "set", FULL, "--waiting", "1"),
        ("override", "set", FULL, "--waiting", "1", "--for", "soon"),
        ("override", "set", FULL, "--waiting", "-1", "--for", "10m"),
        ("override", "set", FULL, "--running", str(2**31), "--for", "10m"),
        ("node", "--engine-url", "http://127.0.0.1:8000", "--metrics", "nowhere"),
    ],
)
def test_usage_errors_have_status_2(run: Run, command: tuple[str, ...]) -> None:
    ended = run(*command)
    assert ended.status == 2
    assert "Usage:" in ended.err


def test_evaluating_names_what_is_wrong_before_it_calls_anybody(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text('{"messages": []}\n{"model": "llama"}\n')
    wrong_line = run("evaluate", file)
    assert wrong_line.status == 2
    assert f"{file}:2: has no messages" in wrong_line.err
    assert "no folder" in run("evaluate", "--json", tmp_path / "none" / "report.json").err
    assert "kept in the JSON only" in run("evaluate", "--keep-texts").err
    (port,) = free_ports(1)
    away = run("evaluate", "-s", f"127.0.0.1:{port}")
    assert away.status == 1
    assert "headrace up" in away.err


def test_a_new_key_is_shown_with_the_digest_that_makes_it_count(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s" * 32 + "\n")
    config = tmp_path / "c.yaml"
    tenants = "policy: {tenants: {known: [{name: acme, keys: []}], required: true}}"
    config.write_text(f"ext_proc: {{key_secret_file: {tmp_path}/secret}}\n{tenants}\n")
    first, second = (run("keys", "new", "acme", "--config", config).out for _ in range(2))
    [key] = [line.strip() for line in first.splitlines() if line.startswith("    hr-")]
    entry = yaml.safe_load(first.rpartition("\n\n")[2])
    assert entry == [{"name": "acme", "keys": [key_digest(key, b"s" * 32)]}]
    assert len(key) >= 43
    assert key not in second


def test_keys_need_a_secret_that_nobody_guesses(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("short")
    config = tmp_path / "c.yaml"
    config.write_text(f"ext_proc: {{key_secret_file: {tmp_path}/secret}}")
    for end in (run("keys", "new", "acme"), run("keys", "new", "acme", "--config", config)):
        assert end.status == 2
        assert "ext_proc.key_secret_file" in end.err
        assert "openssl rand -hex 32" in end.err
        assert end.out == ""
