"""Accepting inline jobs of 1 KB: by the Producer in this process, and over HTTP."""

import asyncio
import base64
import json
import os
import time

import uvloop

from bench import bare
from bench.figures import Figure, ratio_at_least
from bench.stage import Stage
from service.child import HOST
from service.errors import CoatcheckError
from service.intake import NewJob
from service.wiring import Service

_QUEUE, _BYTES = "accepted", 1024
_MANY = 500
_CONNECTIONS = 8
_DELAY = "10m"  #: within what stays inline


def measure(stage: Stage) -> list[Figure]:
    jobs = stage.scaled(100_000, 20_000)
    ours, bound = stage.interleaved(
        lambda: uvloop.run(_produced(stage, min(jobs, stage.scaled(10_000, 4_000)), jobs)),
        lambda: bare.run("bare_enqueue", stage.bound_url, "--jobs", jobs, "--payload-bytes", _BYTES),
    )
    singles, bulks = [each["single_per_s"] for each in bound], [each["bulk_per_s"] for each in bound]
    work = "accepting 1 KB inline"
    return [
        Figure("accept", f"{work}, one a call", "jobs/s", [rate for rate, _ in ours], singles, ratio_at_least(0.75)),
        Figure("accept", f"{work}, 500 a call", "jobs/s", [rate for _, rate in ours], bulks, ratio_at_least(0.4)),
    ]


def over_http(stage: Stage) -> list[Figure]:
    singles, batches = [], []
    for _ in range(stage.runs):
        single, batch = uvloop.run(_posted(stage, stage.scaled(8_000, 2_000), stage.scaled(5, 2)))
        singles.append(single)
        batches.append(batch)
    work = "accepting 1 KB inline over HTTP"
    return [
        Figure("http", f"{work}, one a request, {_CONNECTIONS} connections", "jobs/s", singles),
        Figure("http", f"{work}, 10,000 a request", "jobs/s", batches),
    ]


async def _produced(stage: Stage, single: int, many: int) -> tuple[float, float]:
    """Jobs a second, one a call, and many."""
    body = os.urandom(_BYTES)
    async with stage.bystander() as bystander:
        service = Service(stage.settings(), "api")
        try:
            await service.start()
            began_s = time.perf_counter()
            for _ in range(single):
                await service.producer.enqueue(body, queue=_QUEUE, delay=_DELAY)
            single_s = time.perf_counter() - began_s
            await bystander.client.delete(*[key async for key in bystander.client.scan_iter("*accepted*")])
            began_s = time.perf_counter()
            for _ in range(0, many, _MANY):
                answers = await service.producer.enqueue_many([NewJob(body, _QUEUE, delay=_DELAY)] * _MANY)
                if any(isinstance(answer, CoatcheckError) for answer in answers):
                    raise RuntimeError("a job was refused")
            many_s = time.perf_counter() - began_s
        finally:
            await service.close()
    return single / single_s, many / many_s


async def _posted(stage: Stage, single: int, batches: int) -> tuple[float, float]:
    body = os.urandom(_BYTES)
    line = json.dumps({"payload_base64": base64.b64encode(body).decode(), "delay": _DELAY}).encode() + b"\n"
    async with stage.bystander():
        with stage.service("api", stage.environment()) as process:
            began_s = time.perf_counter()
            one = _request(f"/v1/queues/{_QUEUE}/jobs?delay={_DELAY}", body)
            some = single // _CONNECTIONS
            await asyncio.gather(*(_send(process.port, one, some, 201) for _ in range(_CONNECTIONS)))
            single_s = time.perf_counter() - began_s
            began_s = time.perf_counter()
            await _send(process.port, _request(f"/v1/queues/{_QUEUE}/jobs/batch", line * 10_000), batches, 200)
            batch_s = time.perf_counter() - began_s
    return some * _CONNECTIONS / single_s, batches * 10_000 / batch_s


def _request(path: str, body: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def _send(port: int, request: bytes, times: int, status: int) -> None:
    """The same request again and again on one connection, each after the last one's answer."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        for _ in range(times):
            writer.write(request)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            if f" {status} ".encode() not in head.partition(b"\r\n")[0]:
                raise RuntimeError(head.decode())
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
    finally:
        writer.close()
