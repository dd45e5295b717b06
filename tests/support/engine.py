"""An engine for load and fault tests that answers as vLLM does: HTTP, errors, metrics, and continuous batching.

A request waits until a sequence slot and its KV tokens are free, is prefilled at `prefill_rate`, and then gives one
token after another at `decode_rate`. KV tokens for prompt and output are taken at admission, so nothing is preempted.
A token is `bytes_per_token` bytes. An answer ends at the request's cap with finish_reason `length`, or with `stop`
where its `metadata.stop_after` says, as a model would by itself. All durations are multiplied by `time_scale`; with 0
nothing waits but the event loop's turn.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import socket
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from support.waiting import until

T = TypeVar("T")

BYTES_PER_TOKEN = 4
DEFAULT_OUTPUT_TOKENS = 16
RECORDED_REQUESTS = 100_000


class Fault(StrEnum):
    """How the engine misbehaves while it is set."""

    NONE = "none"
    UNAVAILABLE = "unavailable"  # 503 to everything
    HANG = "hang"  # no answer to anything
    CUT = "cut"  # half of an answer, then the connection is closed
    HOLD = "hold"  # requests are admitted and make no progress; health and metrics answer


@dataclass(frozen=True, slots=True)
class EngineShape:
    """What the engine serves and how fast: rates in tokens per second, prefill for the whole engine, decode for one
    sequence."""

    model: str = "test-model"
    aliases: tuple[str, ...] = ()
    root: str = "org/test-model-awq"
    max_model_len: int = 4096
    max_num_seqs: int = 8
    block_size: int = 16
    num_gpu_blocks: int = 4096
    prefill_rate: float = 8000.0
    decode_rate: float = 50.0
    time_scale: float = 0.0
    bytes_per_token: float = BYTES_PER_TOKEN
    version: str = "0.32.0"
    started_at: float = 1_700_000_000.0
    force_include_usage: bool = False

    @property
    def kv_tokens(self) -> int:
        return self.block_size * self.num_gpu_blocks

    @property
    def names(self) -> tuple[str, ...]:
        return (self.model, *self.aliases)


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it reached the engine; header names as they came, lower-cased by HTTP/1.1 parsing."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


@dataclass(slots=True)
class Counters:
    running: int = 0
    waiting: int = 0
    kv_tokens: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    ttft_sum: float = 0.0
    ttft_count: int = 0
    finished: int = 0
    aborted: int = 0
    most_running: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A parsed request. `chat` answers as chat completions, otherwise as completions."""

    id: str
    chat: bool
    model: str
    prompt_tokens: int
    output_tokens: int
    stream: bool
    include_usage: bool
    priority: int = 0
    finish_reason: str = "length"

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens


class _BadRequestError(Exception):
    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        self.answer = JSONResponse(
            {"error": {"message": message, "type": kind, "param": param, "code": status}}, status_code=status
        )
        super().__init__(message)


@dataclass
class FakeEngine:
    """A running engine. `fault`, `shape` and `healthy` may be changed while it runs, and `health_seconds`, which a
    health check takes."""

    shape: EngineShape
    url: str = ""
    fault: Fault = Fault.NONE
    healthy: bool = True
    health_seconds: float = 0.0
    requests: deque[Received] = field(default_factory=lambda: deque(maxlen=RECORDED_REQUESTS))
    counters: Counters = field(default_factory=Counters)

    def __post_init__(self) -> None:
        self._queue: deque[tuple[Job, asyncio.Future[None]]] = deque()
        self._ids = count(1)
        self._changed = asyncio.Event()

    @property
    def address(self) -> str:
        """`ip:port`."""
        return self.url.removeprefix("http://")

    @property
    def inference_requests(self) -> list[Received]:
        return [request for request in self.requests if request.method == "POST"]

    def set_fault(self, fault: Fault) -> None:
        """Requests that a former fault held go on as the new one says."""
        self.fault = fault
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def app(self) -> Starlette:
        def route(path: str, answer: Callable[[Request, bytes], Any], method: str = "GET") -> Route:
            async def endpoint(request: Request) -> Response:
                body = await request.body()
                self.requests.append(Received(request.method, request.url.path, tuple(request.headers.items()), body))
                while self.fault is Fault.HANG:
                    await self._changed.wait()
                if self.fault is Fault.UNAVAILABLE:
                    return JSONResponse({"error": "unavailable"}, status_code=503)
                try:
                    result = answer(request, body)
                    response: Response = await result if asyncio.iscoroutine(result) else result
                except _BadRequestError as error:
                    return error.answer
                except _DisconnectedError:
                    return Response(status_code=499)
                return response

            return Route(path, endpoint, methods=[method])

        return Starlette(
            routes=[
                route("/health", self._health),
                route("/version", lambda *_: JSONResponse({"version": self.shape.version})),
                route("/v1/models", lambda *_: JSONResponse(self._models())),
                route("/metrics", lambda *_: PlainTextResponse(self._metrics())),
                route("/v1/chat/completions", lambda request, body: self._complete(request, body, chat=True), "POST"),
                route("/v1/completions", lambda request, body: self._complete(request, body, chat=False), "POST"),
                route("/v1/embeddings", lambda _, body: self._embed(body), "POST"),
            ]
        )

    # --- what it says of itself ------------------------------------------------------------------------------------

    async def _health(self, _: Request, __: bytes) -> Response:
        await asyncio.sleep(self.health_seconds)
        return Response(status_code=200 if self.healthy else 503)

    def _models(self) -> dict[str, Any]:
        return {
            "object": "list",
            "data": [
                {
                    "id": name,
                    "object": "model",
                    "created": 1700000000,
                    "owned_by": "vllm",
                    "root": self.shape.root,
                    "parent": None,
                    "max_model_len": self.shape.max_model_len,
                    "permission": [],
                }
                for name in self.shape.names
            ],
        }

    def _metrics(self) -> str:
        shape, counters = self.shape, self.counters
        labels = f'engine="0",model_name="{shape.model}"'
        values = {
            "num_requests_running": ("gauge", counters.running),
            "num_requests_waiting": ("gauge", counters.waiting),
            "kv_cache_usage_perc": ("gauge", counters.kv_tokens / shape.kv_tokens),
            "prompt_tokens_total": ("counter", counters.prompt_tokens),
            "generation_tokens_total": ("counter", counters.generation_tokens),
        }
        lines = []
        for name, (kind, value) in values.items():
            lines += [f"# TYPE vllm:{name.removesuffix('_total')} {kind}", f"vllm:{name}{{{labels}}} {value}"]
        ttft = "vllm:time_to_first_token_seconds"
        lines += [
            f"# TYPE {ttft} histogram",
            f'{ttft}_bucket{{{labels},le="+Inf"}} {counters.ttft_count}',
            f"{ttft}_count{{{labels}}} {counters.ttft_count}",
            f"{ttft}_sum{{{labels}}} {counters.ttft_sum}",
            "# TYPE vllm:cache_config_info gauge",
            f'vllm:cache_config_info{{block_size="{shape.block_size}",cache_dtype="auto",engine="0",'
            f'num_gpu_blocks="{shape.num_gpu_blocks}"}} 1.0',
            "# TYPE process_start_time_seconds gauge",
            f"process_start_time_seconds {shape.started_at}",
        ]
        return "\n".join(lines) + "\n"

    # --- inference -------------------------------------------------------------------------------------------------

    async def _complete(self, request: Request, body: bytes, *, chat: bool) -> Response:
        job = self._parse(body, chat=chat)
        if job.stream:
            return StreamingResponse(self._events(job), media_type="text/event-stream")
        text = await _while_connected(request, self._whole_text(job))
        if self.fault is Fault.CUT:
            return StreamingResponse(_cut(b'{"id": "'), media_type="application/json")
        return JSONResponse(_whole_answer(job, text))

    async def _embed(self, body: bytes) -> Response:
        asked = _object(body)
        self._check_model(asked)
        given = asked.get("input")
        texts = given if isinstance(given, list) else [given]
        tokens = sum(self._tokens(text) for text in texts)
        data = [{"object": "embedding", "index": i, "embedding": [0.6, 0.8]} for i, _ in enumerate(texts)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "model": asked["model"], "data": data, "usage": usage})

    def _parse(self, body: bytes, *, chat: bool) -> Job:
        asked = _object(body)
        self._check_model(asked)
        prompt = asked.get("messages" if chat else "prompt")
        if prompt is None:
            raise _BadRequestError(400, "BadRequestError", f"no {'messages' if chat else 'prompt'}")
        prompt_tokens = self._tokens(prompt)
        room = self.shape.max_model_len - prompt_tokens
        wanted = asked.get("max_completion_tokens") or asked.get("max_tokens")
        stop_after = (asked.get("metadata") or {}).get("stop_after")
        output_tokens = wanted or min(stop_after or DEFAULT_OUTPUT_TOKENS, max(room, 0))
        if output_tokens > room or room <= 0:
            raise _BadRequestError(
                400,
                "BadRequestError",
                f"This model's maximum context length is {self.shape.max_model_len} tokens. However, you requested "
                f"{prompt_tokens + output_tokens} tokens ({prompt_tokens} in the messages, {output_tokens} in the "
                "completion). Please reduce the length of the messages or completion.",
            )
        return Job(
            id=f"{'chatcmpl' if chat else 'cmpl'}-{next(self._ids)}",
            chat=chat,
            model=asked["model"],
            prompt_tokens=prompt_tokens,
            output_tokens=min(output_tokens, stop_after or output_tokens),
            stream=bool(asked.get("stream")),
            include_usage=self.shape.force_include_usage
            or bool((asked.get("stream_options") or {}).get("include_usage")),
            priority=int(asked.get("priority") or 0),
            finish_reason="stop" if stop_after and stop_after <= output_tokens else "length",
        )

    def _tokens(self, text: Any) -> int:
        raw = text if isinstance(text, str) else json.dumps(text)
        return max(1, math.ceil(len(raw.encode()) / self.shape.bytes_per_token))

    def _check_model(self, asked: dict[str, Any]) -> None:
        if asked.get("model") not in self.shape.names:
            message = f"The model `{asked.get('model')}` does not exist."
            raise _BadRequestError(404, "NotFoundError", message, "model")

    def _fits(self, job: Job) -> bool:
        return (
            self.counters.running < self.shape.max_num_seqs
            and self.counters.kv_tokens + job.total_tokens <= self.shape.kv_tokens
        )

    def _take_at_once(self, job: Job) -> bool:
        """In order: a big request at the head of the queue keeps smaller ones behind it."""
        at_once = not self._queue and self._fits(job)
        if at_once:
            self._take(job)
        return at_once

    async def _wait_for_room(self, job: Job) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._queue.append((job, turn))
        self.counters.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(job)
            else:
                self._queue.remove((job, turn))
                self.counters.waiting -= 1
            raise

    def _take(self, job: Job) -> None:
        self.counters.running += 1
        self.counters.kv_tokens += job.total_tokens
        self.counters.most_running = max(self.counters.most_running, self.counters.running)

    def _release(self, job: Job) -> None:
        self.counters.running -= 1
        self.counters.kv_tokens -= job.total_tokens
        while self._queue and self._fits(self._queue[0][0]):
            next_job, turn = self._queue.popleft()
            self.counters.waiting -= 1
            self._take(next_job)
            turn.set_result(None)

    @contextmanager
    def _admitted(self, job: Job) -> Iterator[None]:
        finished = False
        try:
            yield
            finished = True
        finally:
            self._release(job)
            self.counters.finished += finished
            self.counters.aborted += not finished

    async def _generate(self, job: Job) -> AsyncGenerator[str, None]:
        started = asyncio.get_running_loop().time()
        if not self._take_at_once(job):
            await self._wait_for_room(job)
        with self._admitted(job):
            await self._while_held()
            await self._pass(job.prompt_tokens / self.shape.prefill_rate)
            self.counters.prompt_tokens += job.prompt_tokens
            for index in range(job.output_tokens):
                await self._pass(1 / self.shape.decode_rate)
                await self._while_held()
                if index == 0:
                    self.counters.ttft_sum += asyncio.get_running_loop().time() - started
                    self.counters.ttft_count += 1
                self.counters.generation_tokens += 1
                yield f"word{index} "

    async def _while_held(self) -> None:
        while self.fault is Fault.HOLD:
            await self._changed.wait()

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.shape.time_scale)

    async def _whole_text(self, job: Job) -> str:
        async with aclosing(self._generate(job)) as tokens:
            return "".join([token async for token in tokens])

    async def _events(self, job: Job) -> AsyncIterator[bytes]:
        index = 0
        async with aclosing(self._generate(job)) as tokens:
            async for token in tokens:
                if self.fault is Fault.CUT and index >= job.output_tokens // 2:
                    raise _CutError
                yield event_of(chunk_of(job, token, finished=index == job.output_tokens - 1))
                index += 1
        if job.include_usage:
            yield event_of({**head_of(job), "choices": [], "usage": usage_of(job)})
        yield b"data: [DONE]\n\n"


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """As vLLM, which aborts what nobody waits for any more."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise _DisconnectedError
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


class _DisconnectedError(Exception):
    """The client has gone; there is nobody to answer."""


class _CutError(Exception):
    """Ends an answer half way: the server closes the connection without ending the body."""


async def _cut(beginning: bytes) -> AsyncIterator[bytes]:
    yield beginning
    raise _CutError


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _BadRequestError(400, "BadRequestError", "the body is no JSON object")
    return value


def usage_of(job: Job) -> dict[str, int]:
    return {
        "prompt_tokens": job.prompt_tokens,
        "completion_tokens": job.output_tokens,
        "total_tokens": job.total_tokens,
    }


def head_of(job: Job) -> dict[str, Any]:
    kind = ("chat.completion" if job.chat else "text_completion") + (".chunk" if job.chat and job.stream else "")
    return {"id": job.id, "object": kind, "created": 1700000000, "model": job.model}


def chunk_of(job: Job, token: str, *, finished: bool) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": job.finish_reason if finished else None}
    choice |= {"delta": {"role": "assistant", "content": token}} if job.chat else {"text": token}
    return {**head_of(job), "choices": [choice]}


def _whole_answer(job: Job, text: str) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": job.finish_reason}
    choice |= {"message": {"role": "assistant", "content": text}} if job.chat else {"text": text}
    return {**head_of(job), "choices": [choice], "usage": usage_of(job)}


def event_of(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


class _Server(uvicorn.Server):
    """Leaves signals to the tests' own process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def running_engine(shape: EngineShape | None = None, *, port: int = 0) -> AsyncIterator[FakeEngine]:
    """An engine in this event loop on a free port, or on `port` to come back where one was."""
    engine = FakeEngine(shape or EngineShape())
    async with serving(engine, port=port):
        yield engine


@asynccontextmanager
async def serving(engine: FakeEngine, *, port: int = 0) -> AsyncIterator[None]:
    """Serves the engine; its URL is set."""
    # Without the protocol asyncio leaves Nagle's algorithm on, and answers in two parts wait 40 ms for the client.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    engine.url = "http://{}:{}".format(*listener.getsockname())
    config = uvicorn.Config(
        engine.app(), log_config=None, access_log=False, lifespan="off", ws="none", timeout_keep_alive=60
    )
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)  # cut answers are meant
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await until(lambda: server.started or task.done())
        yield
    finally:
        server.should_exit = server.force_exit = True
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        for answering in list(server.server_state.tasks):
            answering.cancel()
        await task
