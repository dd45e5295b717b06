"""The data path of a gateway, on a real Envoy with a stub filter and stub engines."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path

import httpx
import pytest

from controlplane.child import start
from headrace_protos.envoy.service.ext_proc.v3 import external_processor_pb2
from support import gateway as support_gateway
from support import h2c
from support.gateway import body_of, to_pool
from support.waiting import until
from xds_server.gateway import Endpoint, PoolCluster

CHAT = "/v1/chat/completions"


@pytest.fixture
async def client():
    async with httpx.AsyncClient(timeout=20) as client:
        yield client


async def gateway_of(world, *pools):
    """An Envoy that holds the pools; its gateway's URL."""
    world.publish(*pools)
    envoy = await world.envoy()
    await until(world.all_hold_it)
    world.running = envoy
    return await envoy.gateway()


def error_of(answer: httpx.Response) -> dict[str, object]:
    """The OpenAI-shaped error of an answer."""
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def test_envoy_accepts_all_that_is_built_and_serves_by_it(world, client):
    one = await world.engine("one")
    url = await gateway_of(
        world, PoolCluster("p1", (one.endpoint,)), PoolCluster("p/2@settled", (one.endpoint,), health_path=None)
    )
    assert (await client.post(url + CHAT, json={})).status_code == 200
    world.filter.decide = lambda _: to_pool("p/2@settled")
    assert (await client.post(url + CHAT, json={})).status_code == 200
    assert await world.running.error_states() == []
    assert await world.running.stat("cluster_manager.cds.update_rejected") == 0
    assert world.notes.rejections() == []


# --- what clients say ----------------------------------------------------------------------------------------------


async def test_internal_headers_of_clients_reach_neither_filter_nor_engine_nor_routing(world, client):
    one, two = await world.engine("one"), await world.engine("two")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)), PoolCluster("p2", (two.endpoint,)))
    claims = {
        "x-headrace-pool": "p2",
        "X-Headrace-Anything": "x",
        "x-envoy-upstream-rq-timeout-ms": "1",
        "x-envoy-retry-on": "5xx",
    }
    answer = await client.post(url + CHAT, json={}, headers=claims)
    assert (answer.status_code, answer.headers["engine"]) == (200, "one")
    world.filter.decide = lambda _: external_processor_pb2.ProcessingResponse(request_headers={})
    assert (await client.post(url + CHAT, json={}, headers=claims)).status_code == 503
    world.filter.failure = "after it"
    assert (await client.post(url + CHAT, json={}, headers=claims)).status_code == 503
    assert len(one.received) == 1
    for name in map(str.lower, claims):
        assert one.received[0].header(name) is None
        assert not [seen for seen in world.filter.seen if name in seen.headers]


async def test_a_clients_wishes_reach_the_filter_under_another_name_and_no_engine(world, client):
    one = await world.engine("one")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    await client.post(url + CHAT, json={}, headers={"x-headrace-debug": "yes!" * 100, "x-headrace-format": "fp16"})
    seen = world.filter.seen[-1].headers
    assert (seen["headrace-wish-debug"], seen["headrace-wish-format"]) == (["yes!" * 16], ["fp16"])
    assert "headrace" not in one.received[-1].head.lower()


async def test_a_wish_cannot_be_forged_and_without_one_there_is_no_header(world, client):
    one = await world.engine("one")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    forged = {"headrace-wish-debug": "1", "headrace-wish-other": "1"}
    await client.post(url + CHAT, json={}, headers=forged)
    assert "headrace-wish" not in str(world.filter.seen[-1].headers)
    await client.post(url + CHAT, json={}, headers={**forged, "x-headrace-debug": "mine"})
    assert world.filter.seen[-1].headers["headrace-wish-debug"] == ["mine"]
    assert "headrace" not in "".join(request.head for request in one.received).lower()


async def test_a_clients_request_id_is_kept_and_answered(world, client):
    one = await world.engine("one")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    answer = await client.post(url + CHAT, json={}, headers={"x-request-id": "mine"})
    assert answer.headers["x-request-id"] == one.received[-1].header("x-request-id") == "mine"


# --- bodies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [33 << 10, 1 << 20, 10 << 20])
async def test_bodies_up_to_the_limit_reach_filter_and_engine_whole(world, client, size):
    one = await world.engine("one")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    body = body_of(size)
    assert (await client.post(url + CHAT, content=body)).status_code == 200
    assert await h2c.post(int(url.rsplit(":", 1)[1]), CHAT, body)
    assert [seen.body_bytes for seen in world.filter.seen] == [size, size]
    assert [len(request.body) for request in one.received] == [size, size]


async def test_a_body_that_comes_with_pauses_is_waited_for(world, client):
    world.gateway = dataclasses.replace(world.gateway, message_timeout=0.5)
    one = await world.engine("one")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))

    async def pieces():
        for _ in range(4):
            yield b"x" * 1000
            await asyncio.sleep(0.3)  # the pause is what is tested

    assert (await client.post(url + CHAT, content=pieces())).status_code == 200
    assert len(one.received[-1].body) == world.filter.seen[-1].body_bytes == 4000


async def test_a_request_with_trailers_is_refused_rather_than_passed_on_twice(world):
    world.gateway = dataclasses.replace(world.gateway, message_timeout=0.5)
    one = await world.engine("one")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    assert not await h2c.post(int(url.rsplit(":", 1)[1]), CHAT, b"{}", {"x-headrace-pool": "p1"})
    assert one.received == []


async def test_a_body_that_is_too_large_is_refused(world, client):
    world.gateway = dataclasses.replace(world.gateway, max_body_bytes=1 << 20)
    one = await world.engine("one")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    answer = await client.post(url + CHAT, content=body_of((1 << 20) + 1))
    assert (answer.status_code, error_of(answer)["code"]) == (413, "body_too_large")
    assert (await client.post(url + CHAT, content=body_of(1 << 20))).status_code == 200
    assert len(one.received) == 1


@pytest.mark.parametrize("failure", ["before the body's end", "after it", "by silence"])
async def test_a_body_reaches_the_default_pool_unaltered_however_the_filter_fails(world, client, failure):
    world.gateway = dataclasses.replace(world.gateway, default_pool="p1", message_timeout=0.5)
    one = await world.engine("one")
    world.filter.failure = failure
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    sent = [letter * 1000 for letter in (b"A", b"B", b"C", b"D")]

    async def pieces():
        for piece in sent:
            yield piece
            await asyncio.sleep(0.02)  # so that Envoy reads them one by one

    assert (await client.post(url + CHAT, content=pieces())).status_code == 200
    assert one.received[-1].body == b"".join(sent)


# --- what comes back -----------------------------------------------------------------------------------------------


async def test_response_headers_show_the_filters_metadata_and_nothing_without_it(world, client):
    one = await world.engine("one", headers="x-headrace-pool: forged\r\nx-headrace-verdict: forged\r\n")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    world.filter.decide = lambda _: to_pool("p1", pool="p1", format="q4", debug='{"why":"it fits"}')
    answer = await client.post(url + CHAT, json={})
    assert {name: value for name, value in answer.headers.items() if name.startswith("x-headrace-")} == {
        "x-headrace-pool": "p1",
        "x-headrace-format": "q4",
        "x-headrace-decision": '{"why":"it fits"}',
    }
    world.filter.decide = lambda _: to_pool("p1")
    answer = await client.post(url + CHAT, json={})
    assert not [name for name in answer.headers if name.startswith(("x-headrace", "x-envoy"))]


@pytest.mark.parametrize("rates", [True, False])
async def test_what_is_left_of_a_rate_is_told_where_there_are_rates_and_never_by_an_engine(world, client, rates):
    one = await world.engine("one", headers="x-ratelimit-limit-requests: 5\r\nx-ratelimit-reset-tokens: 1s\r\n")
    world.gateway = dataclasses.replace(world.gateway, rates=rates)
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    world.filter.decide = lambda _: to_pool("p1", **{"ratelimit-limit-requests": "60"})
    answer = await client.post(url + CHAT, json={})
    told = {name: value for name, value in answer.headers.items() if name.startswith("x-ratelimit")}
    assert told == ({"x-ratelimit-limit-requests": "60"} if rates else {})


async def test_the_filters_own_answers_pass_untouched(world, client):
    url = await gateway_of(world)
    world.filter.decide = lambda _: external_processor_pb2.ProcessingResponse(
        immediate_response={"status": {"code": 503}, "body": b'{"error":"full"}', "details": "full"}
    )
    answer = await client.post(url + CHAT, json={})
    assert (answer.status_code, answer.text) == (503, '{"error":"full"}')


async def test_without_a_pool_the_answer_says_so(world, client):
    url = await gateway_of(world, PoolCluster("p1", (Endpoint("127.0.0.1", 1),)))
    for pool, code in (("", "undecided"), ("unknown", "pool_unknown")):
        world.filter.decide = lambda _, pool=pool: to_pool(pool)
        answer = await client.post(url + CHAT, json={})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert error_of(answer)["code"] == code


async def test_without_a_pool_the_default_pool_serves_if_there_is_one(world, client):
    world.gateway = dataclasses.replace(world.gateway, default_pool="p1", ext_proc=("127.0.0.1:1",))
    one = await world.engine("one")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    answer = await client.post(url + CHAT, json={}, headers={"x-headrace-debug": "1"})
    assert (answer.status_code, answer.headers["engine"]) == (200, "one")
    assert "headrace" not in one.received[-1].head


async def test_envoys_own_errors_are_openai_shaped(world, client):
    one = await world.engine("one", status="abort")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)), PoolCluster("p2", ()))
    answer = await client.post(url + CHAT, json={})
    assert (answer.status_code, error_of(answer)["code"]) == (502, "node_disconnected")
    world.filter.decide = lambda _: to_pool("p2")
    answer = await client.post(url + CHAT, json={})
    assert (answer.status_code, error_of(answer)["code"]) == (503, "no_healthy_node")
    assert answer.headers["retry-after"] == "1"


async def test_who_asks_for_another_protocol_is_told_that_there_is_none(world, client):
    one = await world.engine("one")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    answer = await client.get(url + CHAT, headers={"connection": "upgrade", "upgrade": "websocket"})
    assert (answer.status_code, error_of(answer)["code"]) == (403, "upgrade_refused")


async def test_a_large_json_answer_passes(world, client):
    one = await world.engine("one", body=json.dumps({"data": "x" * (20 << 20)}).encode())
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    answer = await client.post(url + "/v1/embeddings", json={})
    assert (answer.status_code, len(answer.content)) == (200, len(one.body))


SSE = "content-type: text/event-stream\r\n"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ("content-type: application/json\r\n", b'{"usage":{"prompt_tokens":11,"completion_tokens":7}}'),
        ("content-type: Application/JSON; charset=utf-8\r\n", b'{"usage":{"prompt_tokens":11,"completion_tokens":7}}'),
        ("content-type: application/json\r\n", b'{"usage":{"input_tokens":11,"output_tokens":7}}'),
        (SSE, b'data: {"id":1}\n\ndata: {"usage":{"prompt_tokens":11,"completion_tokens":7}}\n\ndata: [DONE]\n\n'),
        (SSE, b'data: {"response":{"usage":{"input_tokens":11,"output_tokens":7}}}\n\n'),
        (
            SSE,
            b'event: message_start\ndata: {"message":{"usage":{"input_tokens":11,"output_tokens":1}}}\n\n'
            b'event: message_delta\ndata: {"usage":{"output_tokens":7}}\n\n',
        ),
    ],
    ids=[
        "chat",
        "chat by another content type",
        "responses",
        "chat streamed",
        "responses streamed",
        "messages streamed",
    ],
)
async def test_usage_and_decision_come_back_in_the_access_log(world, client, headers, body):
    one = await world.engine("one", headers=headers, body=body)
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    world.filter.decide = lambda _: to_pool("p1", pool="p1")
    answer = await client.post(url + CHAT, json={}, headers={"x-request-id": "mine"})
    assert answer.content == body
    (entry,) = await until(lambda: world.log.entries)
    metadata = entry.common_properties.metadata.filter_metadata
    assert dict(metadata["headrace.usage"]) == {"prompt_tokens": 11, "completion_tokens": 7}
    assert dict(metadata["headrace"]) == {"pool": "p1"}
    assert entry.request.request_id == "mine"
    assert entry.common_properties.route_name == entry.common_properties.upstream_cluster == "p1"


@pytest.mark.parametrize(
    ("headers", "body", "reason"),
    [
        (
            "content-type: application/json\r\n",
            {"incomplete_details": {"reason": "max_output_tokens"}},
            ["max_output_tokens"],
        ),
        ("content-type: application/json\r\n", {"status": "completed", "incomplete_details": None}, []),
        ("content-type: application/json\r\n", {"stop_reason": "max_tokens"}, ["max_tokens"]),
        (SSE, {"response": {"incomplete_details": {"reason": "max_output_tokens"}}}, ["max_output_tokens"]),
        (SSE, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, ["end_turn"]),
        # Envoy 1.40 finds its way through objects only.
        ("content-type: application/json\r\n", {"choices": [{"finish_reason": "length"}]}, []),
        (SSE, {"choices": [{"delta": {}, "finish_reason": "length"}]}, []),
    ],
    ids=[
        "responses",
        "responses, whole",
        "messages",
        "responses streamed",
        "messages streamed",
        "chat",
        "chat streamed",
    ],
)
async def test_why_an_answer_ended_comes_back_where_it_stands_in_no_array(world, client, headers, body, reason):
    encoded = json.dumps(body).encode()
    one = await world.engine("one", headers=headers, body=b"data: %b\n\n" % encoded if headers == SSE else encoded)
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    await client.post(url + CHAT, json={})
    assert [usage.get("finish_reason") for usage in [await usage_of(world)] if usage] == reason


async def test_the_timings_of_a_stream_come_back(world, client):
    last = {"choices": [], "timings": {"cache_n": 30, "prompt_n": 1, "predicted_n": 7}}
    one = await world.engine("one", headers=SSE, body=b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(last).encode())
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    await client.post(url + CHAT, json={})
    assert await usage_of(world) == {"cached_tokens": 30, "read_tokens": 1, "predicted_tokens": 7}


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (
            "400 Bad",
            {
                "error": {
                    "message": "This model's maximum context length is 512 tokens.",
                    "type": "BadRequestError",
                    "code": 400,
                }
            },
            {
                "error_message": "This model's maximum context length is 512 tokens.",
                "error_type": "BadRequestError",
                "error_code": "400",
            },
        ),
        (
            "400 Bad",
            {"object": "error", "message": "The input is longer", "type": "BadRequestError", "code": 400},
            {"error_message": "The input is longer", "error_type": "BadRequestError", "error_code": "400"},
        ),
        (
            "400 Bad",
            {"error": {"message": "x" * 9000, "type": "exceed_context_size_error"}},
            {"error_type": "exceed_context_size_error"},
        ),
        ("400 Bad", {"error": {"message": {"a": 1}, "type": ["x"], "code": None}}, {}),
        ("422 Bad", {"error": {"message": "quotes the prompt", "type": "t", "code": 422}}, {}),
        ("200 OK", {"message": "of another API", "type": "t", "code": "c"}, {}),
    ],
    ids=["vLLM", "flat", "llama.cpp, too long", "of wrong types", "another error", "no error"],
)
async def test_of_a_400_and_of_nothing_else_it_comes_back_what_the_error_is(world, client, status, body, found):
    one = await world.engine("one", status=status, body=json.dumps(body).encode())
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    answer = await client.post(url + CHAT, json={})
    assert answer.content == one.body
    assert await usage_of(world) == found


async def usage_of(world) -> dict[str, object]:
    """What Envoy read out of the answer to the only request."""
    (entry,) = await until(lambda: world.log.entries)
    metadata = entry.common_properties.metadata.filter_metadata
    return dict(metadata["headrace.usage"]) if "headrace.usage" in metadata else {}


# --- engines that fail ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["429 Too Many", "503 Busy", "400 Bad", "404 Unknown"])
async def test_busy_engines_and_wrong_clients_eject_nobody(world, client, status):
    one = await world.engine("one", status=status)
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
    for _ in range(30):
        assert (await client.post(url + CHAT, json={})).status_code == int(status.split(" ")[0])
    stats = await world.running.stats("^cluster.p1.outlier_detection")
    assert stats["cluster.p1.outlier_detection.ejections_active"] == 0
    assert stats["cluster.p1.outlier_detection.ejections_detected_consecutive_5xx"] == 0


async def test_a_broken_engine_is_ejected(world, client):
    one, two = await world.engine("one", status="500 Broken"), await world.engine("two")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint, two.endpoint)))

    async def ejected():
        await client.post(url + CHAT, json={})
        return await world.running.stat("cluster.p1.outlier_detection.ejections_active")

    await until(ejected)
    assert {(await client.post(url + CHAT, json={})).status_code for _ in range(20)} == {200}


async def test_no_request_is_lost_when_an_engine_dies(world, client):
    one, two = await world.engine("one"), await world.engine("two")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint, two.endpoint)))
    for _ in range(4):
        await client.post(url + CHAT, json={})
    await one.stop()
    assert {(await client.post(url + CHAT, json={})).headers.get("engine") for _ in range(30)} == {"two"}


async def test_an_engine_that_fails_its_health_check_gets_nothing(world, client):
    one = await world.engine("one", healthy=False)
    two = await world.engine("two")
    url = await gateway_of(world, PoolCluster("p1", (one.endpoint, two.endpoint)))
    assert {(await client.post(url + CHAT, json={})).headers["engine"] for _ in range(20)} == {"two"}


# --- requests that are refused -------------------------------------------------------------------------------------


TOO_LONG = json.dumps({"error": {"message": "This model's maximum context length is 512 tokens."}}).encode()


@dataclasses.dataclass
class Sizes:
    """A pool of two small engines, which is retried at a pool of a large one."""

    small: support_gateway.Engine
    other: support_gateway.Engine
    large: support_gateway.Engine
    url: str

    @classmethod
    async def of(cls, world, **answer):
        small, other = await world.engine("small", **answer), await world.engine("other", **answer)
        large = await world.engine("large")
        url = await gateway_of(
            world,
            PoolCluster("p1", (small.endpoint, other.endpoint), retried_at="p2"),
            PoolCluster("p2", (large.endpoint,)),
        )
        return cls(small, other, large, url)

    @property
    def tries(self):
        return len(self.small.received) + len(self.other.received), len(self.large.received)


@pytest.mark.parametrize("answer", ["200 OK", "400 Bad"], ids=["fits there", "refused there too"])
async def test_a_400_is_tried_once_more_and_at_the_larger_pool(world, client, answer):
    sizes = await Sizes.of(world, status="400 Bad", body=TOO_LONG)
    sizes.large.status = answer
    body = body_of(1 << 20)
    got = await client.post(sizes.url + CHAT, content=body)
    assert (got.status_code, got.headers["engine"]) == (int(answer[:3]), "large")
    assert sizes.tries == (1, 1)
    assert sizes.large.received[0].body == body
    (entry,) = await until(lambda: world.log.entries)
    assert entry.common_properties.upstream_cluster == "p2"
    assert entry.common_properties.upstream_request_attempt_count == 2
    assert entry.common_properties.upstream_remote_address.socket_address.port_value == sizes.large.port


@pytest.mark.parametrize(
    "status", ["200 OK", "401 Who", "404 Unknown", "413 Large", "422 Bad", "429 Many", "500 Broken", "503 Busy"]
)
async def test_no_other_answer_is_tried_again(world, client, status):
    sizes = await Sizes.of(world, status=status)
    assert (await client.post(sizes.url + CHAT, json={})).status_code == int(status[:3])
    assert sizes.tries == (1, 0)


async def test_a_pool_that_is_retried_keeps_its_traffic_while_one_of_its_engines_is_well(world, client):
    sizes = await Sizes.of(world)
    sizes.other.healthy = False
    await until(lambda: _is_healthy(world, "p1", 1))
    assert {(await client.post(sizes.url + CHAT, json={})).headers["engine"] for _ in range(30)} == {"small"}


async def test_no_request_is_lost_when_an_engine_of_a_retried_pool_dies(world, client):
    sizes = await Sizes.of(world)
    await sizes.small.stop()
    assert {(await client.post(sizes.url + CHAT, json={})).status_code for _ in range(30)} == {200}
    await sizes.other.stop()
    assert {(await client.post(sizes.url + CHAT, json={})).headers.get("engine") for _ in range(10)} == {"large"}


async def test_without_the_larger_pool_a_400_comes_back_as_it_is(world, client):
    sizes = await Sizes.of(world, status="400 Bad", body=TOO_LONG)
    world.publish(PoolCluster("p1", (sizes.small.endpoint, sizes.other.endpoint)))
    await until(world.all_hold_it)
    got = await client.post(sizes.url + CHAT, json={})
    assert (got.status_code, got.content) == (400, TOO_LONG)
    assert sizes.tries == (1, 0)
    assert world.notes.rejections() == []


async def _is_healthy(world, pool, engines) -> bool:
    return await world.running.stat(f"cluster.{pool}.membership_healthy") == engines


# --- filters that fail ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL], ids=["hangs", "dies"])
async def test_no_request_is_lost_when_one_of_two_filter_workers(world, client, tmp_path, blow):
    sockets = [tmp_path / "a.sock", tmp_path / "b.sock"]
    workers = [await _filter_process(socket) for socket in sockets]
    try:
        await until(lambda: all(socket.exists() for socket in sockets))
        world.gateway = dataclasses.replace(world.gateway, ext_proc=tuple(f"unix:{socket}" for socket in sockets))
        one = await world.engine("one")
        url = await gateway_of(world, PoolCluster("p1", (one.endpoint,)))
        await until(lambda: _is_answered(client, url))
        workers[0].send_signal(blow)
        # Envoy keeps as much of a question as it may have to send to another worker: 64 KiB.
        bodies = (b"{}", body_of(60_000)) * 10
        answers = await asyncio.gather(*(client.post(url + CHAT, content=body) for body in bodies))
        assert [answer.status_code for answer in answers] == [200] * 20
    finally:
        for worker in workers:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()


async def _filter_process(socket: Path) -> asyncio.subprocess.Process:
    tests = Path(support_gateway.__file__).parents[1]
    return await start(
        [sys.executable, "-P", "-m", "support.gateway", f"unix:{socket}"],
        env={**os.environ, "PYTHONPATH": str(tests)},
        on_parent_death=signal.SIGKILL,
    )


async def _is_answered(client, url) -> bool:
    return (await client.post(url + CHAT, json={})).status_code == 200
