"""Callers of the HTTP API, several at once, and what they were told."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

from tests.kit.site import QUEUE, Consumer

_CALLERS = 8


@dataclass
class Answers:
    """What callers were told, by job number."""

    accepted: dict[int, str] = field(default_factory=dict)  #: number -> reference
    unknown: dict[int, str] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)  #: not accepted, by our own word
    unanswered: set[int] = field(default_factory=set)


async def _send(http: httpx.AsyncClient, number: int, payload: bytes, answers: Answers) -> None:
    try:
        response = await http.post(f"/v1/queues/{QUEUE}/jobs", params={"delay": "0s"}, content=payload)
    except httpx.TransportError:
        answers.unanswered.add(number)
        return
    body = response.json()
    if response.status_code == 201:
        answers.accepted[number] = body["reference"]
    elif body["type"] == "urn:coatcheck:outcome-unknown":
        answers.unknown[number] = body["reference"]
    else:
        assert response.status_code == 503, body
        answers.refused.add(number)
    assert response.status_code == 201 or "Retry-After" in response.headers


async def send_all(url: str, jobs: Mapping[int, bytes], answers: Answers) -> None:
    """By several callers at once."""
    waiting = iter(jobs.items())
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:

        async def caller() -> None:
            for number, payload in waiting:
                await _send(http, number, payload, answers)

        await asyncio.gather(*(caller() for _ in range(_CALLERS)))


def judge(consumer: Consumer, answers: Answers) -> None:
    """Told "accepted": arrived once. Told "unknown", or nothing: at most once. Told "refused": never."""
    accepted, unsure = set(answers.accepted), set(answers.unknown) | answers.unanswered
    consumer.exactly(accepted | (unsure & set(consumer.got)))
