"""`coatcheck worker`, as people run it: by what the shell sees."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.processes import Process
from tests.kit.waiting import eventually
from tests.kit.workers import QUEUE, QUICK, Workshop, both_kinds, envelope

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, and PDEATHSIG is Linux's")

APP = """
import asyncio, os, threading, time
import redis
from service.worker import Context, Worker

app = Worker()
client = redis.Redis.from_url(os.environ["COATCHECK_REDIS__URL"])

@app.task("note")
async def note(payload, context: Context):
    client.rpush("noted", f"{context.id}:{context.attempt}")

@app.task("slow")
async def slow(payload):
    client.rpush("noted", "begun")
    await asyncio.sleep(payload)
    client.rpush("noted", "ended")

@app.task("stuck")
def stuck(payload):
    client.rpush("noted", "stuck")
    time.sleep(payload)

@app.task("deaf task")
async def deaf_task(payload):
    async def deaf():
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass
    app.left = asyncio.create_task(deaf())
    client.rpush("noted", "left")

@app.task("thread")
async def thread(payload):
    threading.Thread(target=time.sleep, args=(600,)).start()
    client.rpush("noted", "left")

@app.task("default executor")
async def default_executor(payload):
    client.rpush("noted", "begun")
    await asyncio.to_thread(time.sleep, 600)

@app.task("exit later")
async def exit_later(payload):
    asyncio.get_running_loop().call_soon(os.sys.exit, 3)
    await asyncio.sleep(60)

@app.task("cancel all")
async def cancel_all(payload):
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(60)

@app.task("kill")
async def kill(payload):
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@contextmanager
def working(shop: Workshop, app: Path, *options: str, **more: str) -> Iterator[Process]:
    given = {f"COATCHECK_{name}": value for name, value in {"REDIS__URL": shop.redis_url, **more}.items()}
    process = Process({**shop.environ, **given}, "worker", "app:app", *(options or ("--queue", QUEUE)), cwd=app)
    try:
        yield process
    finally:
        process.child.close()


async def noted(shop: Workshop, count: int) -> list[str]:
    async def enough() -> list[bytes] | None:
        seen = await shop.redis.lrange("noted", 0, -1)
        assert len(seen) >= count, f"{seen}"
        return list(seen)

    return [each.decode() for each in await eventually(enough, 20, f"{count} notes")]


async def test_it_works_tells_how_it_goes_and_stops_when_told_to(shop: Workshop, app: Path) -> None:
    with working(shop, app, "--queue", "critical=6", "--queue", QUEUE, "--concurrency", "3") as process:
        await process.is_ready()
        await shop.push("critical", envelope("note", id="a"))
        await shop.push(QUEUE, envelope("note", id="b"))
        assert sorted(await noted(shop, 2)) == ["a:0", "b:0"]
        assert await process.metric("worker_jobs_total", task="note", outcome="done") == 2
        assert await process.metric("worker_running_jobs") == 0
        await process.answers("/healthz")
        assert await process.stopped() == 0, process.log
        assert "Traceback" not in process.log
    assert await shop.redis.keys(shop.keys.queue(QUEUE).workers) == []


async def test_a_running_job_is_finished_before_the_process_ends(shop: Workshop, app: Path) -> None:
    with working(shop, app) as process:
        await shop.push(QUEUE, envelope("slow", 1))
        await noted(shop, 1)
        assert await process.stopped() == 0, process.log
    assert await noted(shop, 2) == ["begun", "ended"]
    assert not await shop.inflight()


@pytest.mark.parametrize("task", ["slow", "stuck"])
async def test_what_is_not_finished_within_the_grace_period_goes_back(shop: Workshop, app: Path, task: str) -> None:
    """A thread cannot be stopped: the process must end all the same."""
    raw, waiting = envelope(task, 600), envelope("note")
    with working(shop, app, "--queue", QUEUE, "--concurrency", "1", WORKER__GRACE="300ms") as process:
        await shop.push(QUEUE, raw)
        await noted(shop, 1)
        await shop.push(QUEUE, waiting)
        assert await process.stopped(within_s=15) == 0, process.log
    assert sorted(await shop.redis.lrange(shop.keys.queue(QUEUE).ready, 0, -1)) == sorted([raw, waiting])
    assert not await shop.inflight()


@pytest.mark.parametrize("task", ["deaf task", "thread", "default executor"])
async def test_what_handlers_leave_running_keeps_no_process_from_its_end(shop: Workshop, app: Path, task: str) -> None:
    """It was killed after its orchestrator's patience, each time."""
    with working(shop, app, WORKER__GRACE="300ms") as process:
        await shop.push(QUEUE, envelope(task))
        await noted(shop, 1)
        assert await process.stopped(within_s=15) == 0, process.log
    assert not await shop.inflight()
    assert not await shop.redis.exists(shop.keys.queue(QUEUE).workers)


async def test_a_second_sigterm_takes_no_job_from_the_grace_of_the_first(shop: Workshop, app: Path) -> None:
    """Process managers that signal the group, and forward what they were told, send two."""
    with working(shop, app) as process:
        await shop.push(QUEUE, envelope("slow", 2))
        await noted(shop, 1)
        process.send(signal.SIGTERM)
        await eventually(lambda: "finishing" in process.log, described="it is told to stop")
        assert await process.stopped() == 0, process.log
    assert await noted(shop, 2) == ["begun", "ended"]


@both_kinds
async def test_a_job_that_kills_its_process_each_time_ends_dead_and_takes_no_other_with_it(
    shop: Workshop, app: Path
) -> None:
    """Returned to the head of its queue it would kill every worker there is, one after another, for ever."""
    poison = envelope("kill", id="poison")
    others = [envelope("note", id=f"other-{number}") for number in range(30)]
    await shop.push(QUEUE, *others[:10], poison, *others[10:])
    deaths = 0
    for _ in range(12):
        with working(shop, app, **QUICK, WORKER__MAX_DEATHS="4") as process:

            async def over() -> bool:
                return not process.child.running or bool(await shop.redis.zcard(shop.keys.queue(QUEUE).dead))

            await eventually(over, 30, "it dies, or the job is dead")
            if not process.child.running:
                assert process.child.wait(0) == -signal.SIGKILL, process.log
                deaths += 1
                continue
            (record,) = await shop.dead()
            await shop.idle(within_s=30)
            assert await process.stopped() == 0
            break
    assert deaths == 4
    assert record["reason"] == "worker_died"
    assert record["body"] == poison
    seen = {note.partition(":")[0] for note in await noted(shop, 30)}
    assert seen == {f"other-{number}" for number in range(30)}


@pytest.mark.parametrize("task", ["exit later", "cancel all"])
async def test_a_job_that_ends_its_process_in_order_each_time_is_dead_like_one_that_kills_it(
    shop: Workshop, app: Path, task: str
) -> None:
    """An end that nobody asked for gave the job back as one that was not begun, without a strike, for ever."""
    await shop.push(QUEUE, envelope(task))
    for _ in range(2):
        with working(shop, app, **QUICK, WORKER__MAX_DEATHS="2") as process:
            await process.ended()
            assert await shop.inflight(), process.log
    with working(shop, app, **QUICK, WORKER__MAX_DEATHS="2") as process:
        (record,) = await shop.dead(within_s=20)
        assert await process.stopped() == 0, process.log
    assert record["reason"] == "worker_died"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere:app", "--queue", QUEUE], "no module"),
        ([":app", "--queue", QUEUE], "full name"),
        ([".app:app", "--queue", QUEUE], "full name"),
        (["app:Context", "--queue", QUEUE], "not a Worker"),
        (["app:wrker", "--queue", QUEUE], "app:app"),
        (["app:app", "--queue", f"{QUEUE}=many"], "a weight"),
        (["app:app", "--queue", f"{QUEUE}=0"], "a weight"),
        (["app:app", "--queue", QUEUE, "--queue", QUEUE], "twice"),
        (["app:app"], "--queue"),
        (["app:app", "--queue", "a::b"], "a::b"),
    ],
)
async def test_what_cannot_be_run_is_said_at_once(shop: Workshop, app: Path, arguments: list[str], says: str) -> None:
    process = Process({"COATCHECK_REDIS__URL": shop.redis_url}, "worker", *arguments, cwd=app)
    try:
        assert await process.ended() in (1, 2)
        assert says in process.log
        assert "Traceback" not in process.log
    finally:
        process.child.close()
