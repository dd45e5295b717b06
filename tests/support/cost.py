"""What deciding costs, in numbers that are the same on a busy machine: instructions, calls into C, bytes at the peak.

Instructions are those of Python's own virtual machine. What C does, as in parsing JSON, is no more than a call here;
that it copies nothing once too often shows in the bytes.
"""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count, product
from pathlib import Path
from types import FrameType
from typing import Any

from controlplane.model import Ask
from controlplane.policy.ask import parse
from controlplane.policy.decide import decide
from controlplane.policy.table import RoutingTable
from ext_proc import raw
from ext_proc.exchange import Exchange
from ext_proc.http2 import fields, frames
from ext_proc.http2.grpc import Call
from support.asks import IDLE, make_pool, make_request, make_table
from support.filter import body_message, headers_message, new_router, not_extended
from support.http2 import NO_TABLE, OPENING, REQUEST, served_in_memory
from support.http2 import data as data_frame

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
    """For chats of two sizes: of the pure decision, with 200 pools, of an exchange with Envoy, from the bytes of its
    messages to those of the answer, and of what brings them."""
    table = _table()
    found = {}
    for size in KILOBYTES:
        for name, step in _steps(size * 1000, table).items():
            found[f"{name}, {size} KB"] = cost(step)
    return found


def cost(step: Callable[[], object]) -> Cost:
    for _ in range(WARM_UPS):
        step()
    with _no_garbage_collected():
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

    reader = raw.Reader()

    def exchange() -> bytes:
        collected = Exchange(1 << 20)
        for part in parts:
            whole = reader.take(collected, part)
        assert whole is not None
        return raw.response(_result(router.answer(whole, not_extended)))

    return {
        "read": lambda: parse(request, table.policy),
        "decide": lambda: decide(ask, table, None),
        "exchange": exchange,
        "transport": _transport(parts),
    }


def _transport(parts: Sequence[bytes]) -> Callable[[], object]:
    """A stream of these messages on our own HTTP/2, from its bytes to those of an answer of 600."""
    answer = bytes(600)

    class Answering:
        def __init__(self, call: Call) -> None:
            self._call = call
            self._taken = 0

        def take(self, message: bytes) -> None:
            self._taken += 1
            if self._taken == len(parts):
                self._call.answer(answer)

        def half_close(self) -> None:
            pass

        def end(self) -> None:
            pass

    served = served_in_memory({"/test.Test/Test": Answering}, most_message_bytes=1 << 20)
    served.receive(OPENING + frames.SETTINGS_ACK + frames.window_update(0, 1 << 30), 0.0)
    block = NO_TABLE + fields.block(REQUEST)
    streams = count(1, 2)

    def step() -> bytes:
        stream_id = next(streams)
        sent = [frames.headers(stream_id, block, frames.DEFAULT_FRAME_SIZE, end_stream=False)]
        sent += [data_frame(stream_id, len(part).to_bytes(5, "big") + part) for part in parts]
        served.receive(b"".join((*sent, data_frame(stream_id, b"", end=True))), 0.0)
        return served.http2.take_output()

    return step


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


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """The finalizers of what others left behind would run as if they were part of a step."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
