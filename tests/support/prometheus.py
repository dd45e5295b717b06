"""A server that answers instant queries as Prometheus does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import parse_qs


class FakePrometheus:
    """`answers` are vectors by query: of each value the labels and the number, in Prometheus's own spelling. Of other
    queries it knows no series. While `status` is none of 200 it answers with that alone."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[Mapping[str, str], str]]] = {}
        self.status = 200
        self.asked: list[dict[str, str]] = []
        self.headers: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.lower().splitlines()
        length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
        asked = {name: values[-1] for name, values in parse_qs((await reader.readexactly(length)).decode()).items()}
        self.asked.append(asked)
        self.headers.append(head)
        found = self.answers.get(asked["query"], [])
        result = [{"metric": labels, "value": [1764500000.123, value]} for labels, value in found]
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
        answer = f"HTTP/1.1 {self.status} x\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
        writer.write(answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def running_prometheus() -> AsyncIterator[FakePrometheus]:
    fake = FakePrometheus()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield fake
