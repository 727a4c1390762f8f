"""`kill -9` of the process that accepts jobs, at random moments, while callers wait for its answers."""

import asyncio
import random

import pytest

from tests.kit.callers import Answers, judge, send_all
from tests.kit.processes import running
from tests.kit.site import Site, consuming, mixed
from tests.kit.waiting import eventually


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", [1, 2])
async def test_what_was_answered_is_delivered_however_the_api_dies(site: Site, seed: int) -> None:
    """The payload goes first, then the reference, then the answer: a crash leaves at worst a payload without a job, and
    only where nobody was told that there is one."""
    rng, answers = random.Random(seed), Answers()
    rounds, per_round = 6, 300
    with running(site.environ(), "dispatcher") as dispatcher:
        async with consuming(site) as consumer:
            for at in range(0, rounds * per_round, per_round):
                with running(site.environ(), "api") as api:
                    await api.is_ready()
                    sending = asyncio.create_task(send_all(api.url, mixed(range(at, at + per_round)), answers))
                    await _answered(answers, len(answers.accepted) + rng.randrange(20, 200))
                    api.kill()
                    await sending
            assert not answers.unknown
            assert not answers.refused
            assert answers.unanswered, "no kill hit a caller that waited"
            await dispatcher.is_ready()
            await consumer.has(len(answers.accepted), within_s=60)
            orphans = await site.nothing_left(hurried=True, orphans=len(answers.unanswered))
            judge(consumer, answers)
            arrived_unanswered = len(answers.unanswered & set(consumer.got))
            assert orphans + arrived_unanswered <= len(answers.unanswered)
            print(len(answers.accepted), "answered;", len(answers.unanswered), "not, of which", arrived_unanswered)
            print("arrived all the same, and", orphans, "left an orphan")


async def _answered(answers: Answers, count: int) -> None:
    await eventually(lambda: len(answers.accepted) >= count, 60, f"{count} jobs are accepted")
