"""What deciding costs, in numbers that are the same on a busy machine: instructions, calls into C, bytes at the peak.

Instructions are those of Python's own virtual machine. What C does, as in parsing JSON, is no more than a call here;
that it copies nothing once too often shows in the bytes.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

from controlplane.model import Ask
from controlplane.policy.ask import parse
from controlplane.policy.decide import decide
from controlplane.policy.table import RoutingTable
from ext_proc import wire
from ext_proc.exchange import Exchange
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2 as messages
from support.asks import IDLE, make_pool, make_request, make_table
from support.filter import body_message, headers_message, new_router, not_extended

STORED = Path(__file__).parents[1] / "ext_proc" / "costs.json"
# How the stored values are those of; each minor version compiles to other instructions.
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MODELS = 50
KILOBYTES = (2, 50)
# The first runs fill caches.
WARM_UPS = 20

_PROSE = (
    "Please review the following report on the harbour and its trade. The council met on Tuesday to discuss the plans, "
    "and several members asked how the costs had been worked out, since the figures of the two years did not agree. "
)
_TASK = "Write a Python function that reads the table, and return the result as JSON."


@dataclass(frozen=True, slots=True)
class Cost:
    instructions: int
    c_calls: int
    peak_bytes: int


def costs() -> dict[str, Cost]:
    """Of the pure decision and of a whole exchange with Envoy, with 200 pools, for chats of two sizes."""
    table = _table()
    found = {}
    for size in KILOBYTES:
        for name, step in _steps(size * 1000, table).items():
            found[f"{name}, {size} KB"] = cost(step)
    return found


def cost(step: Callable[[], object]) -> Cost:
    for _ in range(WARM_UPS):
        step()
    return Cost(_instructions(step), _c_calls(step), _peak_bytes(step))


def stored() -> dict[str, Cost] | None:
    """The right values for this version of Python; None if there are none."""
    found = json.loads(STORED.read_text()).get(PYTHON)
    return None if found is None else {name: Cost(**fields) for name, fields in found.items()}


def store(found: dict[str, Cost]) -> None:
    """Beside those of other versions."""
    every = json.loads(STORED.read_text()) if STORED.exists() else {}
    every[PYTHON] = {name: asdict(each) for name, each in found.items()}
    STORED.write_text(json.dumps(every, indent=2, sort_keys=True) + "\n")


def _steps(size: int, table: RoutingTable) -> dict[str, Callable[[], object]]:
    body = _chat(size)
    request = make_request(body)
    ask = parse(request, table.policy)
    assert isinstance(ask, Ask)
    router = new_router(table)
    parts = [
        message.SerializeToString()
        for message in (headers_message({"x-request-id": "7c1e"}), body_message(body, end=True))
    ]

    def exchange() -> bytes:
        collected = Exchange(1 << 20)
        for part in parts:
            whole = wire.take(collected, messages.ProcessingRequest.FromString(part))
        assert whole is not None
        return wire.response(_result(router.answer(whole, not_extended))).SerializeToString()

    return {
        "read": lambda: parse(request, table.policy),
        "decide": lambda: decide(ask, table, None),
        "exchange": exchange,
    }


def _result(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Of one that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waited")


def _table() -> RoutingTable:
    kinds = product(range(MODELS), ("full", "quantized"), ("short", "long"))
    return make_table(
        *(make_pool(tier, context, model=f"model-{number}", load=IDLE) for number, tier, context in kinds)
    )


def _chat(size: int) -> bytes:
    text = (_PROSE * (size // len(_PROSE) + 1))[: size - 200 - len(_TASK)] + _TASK
    turns = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": text}]
    return json.dumps({"model": "model-7", "temperature": 0, "max_tokens": 1000, "messages": turns}).encode()


def _instructions(step: Callable[[], object]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    finally:
        sys.settrace(before)
    return count


def _c_calls(step: Callable[[], object]) -> int:
    count = 0

    def profile(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "c_call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        step()
    finally:
        sys.setprofile(before)
    return count


def _peak_bytes(step: Callable[[], object]) -> int:
    """At once, above what there was before."""
    tracemalloc.start()
    try:
        step()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        step()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
