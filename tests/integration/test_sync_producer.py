"""Producers for applications: the async one, and the one that blocks, from threads and across fork."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import redis as sync_redis

from service.configuration.mistakes import SettingsError
from service.embedded import RedisServer
from service.errors import (
    BackendUnavailable,
    CannotStart,
    CoatcheckError,
    IdempotencyKeyReused,
    InvalidQueue,
    InvalidTime,
    RedisUnavailable,
    UnknownTenant,
)
from service.guarded import START_PATIENCE_S
from service.keys import Keys
from service.producing import Accepted, NewJob, SyncProducer, blocking, open_producer
from service.settings import load
from tests.kit.proxy import Proxy
from tests.kit.services import settings_for

QUEUE = "emails"
LARGE = b"x" * 20_000
#: CPython warns of what this file is about: a fork while other threads run.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def redis(shared_redis: RedisServer) -> Iterator[sync_redis.Redis]:
    with sync_redis.Redis.from_url(shared_redis.url) as client:
        client.flushall()
        yield client


@pytest.fixture
def environ(redis: sync_redis.Redis, shared_redis: RedisServer) -> dict[str, str]:
    return settings_for(shared_redis.url)


@pytest.fixture
def producer(environ: dict[str, str]) -> Iterator[SyncProducer]:
    with SyncProducer(environ) as made:
        yield made


def delayed(redis: sync_redis.Redis, queue: str = QUEUE) -> set[str]:
    members: Any = redis.zrange(Keys().queue(queue).delayed, 0, -1)
    return {member.decode() for member in members}


def connections(redis: sync_redis.Redis) -> set[str]:
    """The producers' ends, as Redis sees them."""
    listed: Any = redis.client_list()
    return {each["addr"] for each in listed if each["name"] == "coatcheck"}


def in_child(work: Callable[[], object]) -> None:
    """Forks, works in the child, and fails if that does not end well in time: a deadlock must not hang the suite."""
    pid = os.fork()
    if pid == 0:  # no cleaning up of pytest's in the child
        signal.alarm(30)
        try:
            work()
        except BaseException:  # noqa: BLE001  the parent has to know
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# ---- async -----------------------------------------------------------------------------------------------------------


async def test_an_application_opens_a_producer_and_has_what_the_service_has(redis, environ):
    async with open_producer(environ) as producer:
        accepted = await producer.enqueue(b"hello", queue=QUEUE, delay="1h")
        answers = await producer.enqueue_many([NewJob(b"a", QUEUE, "1h"), NewJob(b"b", "no::queue", "1h")])
    assert isinstance(answers[0], Accepted)
    assert isinstance(answers[1], InvalidQueue)
    assert delayed(redis) == {str(accepted.reference), str(answers[0].reference)}
    assert connections(redis) == set()


async def test_a_producer_takes_settings_that_are_made_already(redis, environ):
    async with open_producer(load(environ)) as producer:
        await producer.enqueue(b"hello", queue=QUEUE, delay="1h")
    assert len(delayed(redis)) == 1


async def test_a_producer_does_not_wait_for_ever_for_a_redis_that_is_not_there():
    """The service does, for it has nothing better to do; an application that starts has."""
    with pytest.raises(RedisUnavailable, match=r"Redis at 127\.0\.0\.1:1 .*was not there within 0\.3 s"):
        async with open_producer(settings_for("redis://127.0.0.1:1/0"), within_s=0.3):
            pytest.fail("it cannot accept anything")


async def test_backends_that_never_answer_hold_up_nobody(redis, shared_redis, s3_server):
    """Both are waited for at once, for a moment, by the first call; a job that does without them is accepted."""
    async with Proxy(s3_server.port) as s3:
        s3.blackhole()
        environ = settings_for(shared_redis.url, s3_server, BACKENDS__S3_ACME__KIND="s3")
        for setting in ("BUCKET", "REGION"):
            environ[f"COATCHECK_BACKENDS__S3_ACME__{setting}"] = environ[f"COATCHECK_BACKENDS__S3__{setting}"]
        for name in ("S3", "S3_ACME"):
            environ[f"COATCHECK_BACKENDS__{name}__ENDPOINT_URL"] = s3.http_url
        producer = SyncProducer(environ)
        began_s = time.monotonic()
        tiny = await asyncio.to_thread(producer.enqueue, b"tiny", queue=QUEUE, delay="1h")
        assert time.monotonic() - began_s < 2 * START_PATIENCE_S
        large = await asyncio.to_thread(producer.enqueue, LARGE, queue=QUEUE, delay="1h")
        assert [(each.backend, each.reason) for each in (tiny, large)] == [("redis", "tiny"), ("redis", "fallback")]
        await s3.heal()
        await asyncio.to_thread(producer.close)


async def test_a_redis_that_would_lose_jobs_is_refused(own_redis):
    server = own_redis(maxmemory_policy="allkeys-lru")
    with pytest.raises(CannotStart):
        async with open_producer(settings_for(server.url)):
            pytest.fail("it would lose jobs")


# ---- blocking: the same ----------------------------------------------------------------------------------------------


def test_a_blocking_producer_accepts_one_and_many(redis, producer):
    one = producer.enqueue(b"hello", queue=QUEUE, delay=timedelta(minutes=5))
    two, three = producer.enqueue_many([NewJob(b"a", QUEUE, "1h"), NewJob(b"b", QUEUE, "1h")])
    assert isinstance(two, Accepted)
    assert isinstance(three, Accepted)
    assert delayed(redis) == {str(it.reference) for it in (one, two, three)}


def test_large_payloads_go_to_their_backend(redis, shared_redis, s3_server):
    with SyncProducer(settings_for(shared_redis.url, s3_server)) as producer:
        assert producer.enqueue(LARGE, queue=QUEUE, delay="1h").backend == "s3"


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"queue": "a::b", "delay": "1h"}, InvalidQueue),
        ({"queue": QUEUE}, InvalidTime),
        ({"queue": QUEUE, "delay": "30"}, InvalidTime),
        ({"queue": QUEUE, "delay": "1h", "tenant": "nobody"}, UnknownTenant),
        ({"queue": QUEUE, "delay": "1h", "idempotency_key": "used"}, IdempotencyKeyReused),
    ],
    ids=lambda it: it.__name__ if isinstance(it, type) else None,
)
def test_errors_are_those_of_the_async_one(redis, environ, options, kind):
    """Whoever moves from one to the other keeps their `except`."""
    environ = {**environ, "COATCHECK_TENANTS__ACME__OFFLOAD_TO": ""}

    async def awaited() -> CoatcheckError:
        async with open_producer(environ) as producer:
            with pytest.raises(kind) as caught:
                await producer.enqueue(b"x", **options)
            return caught.value

    with SyncProducer(environ) as producer:
        producer.enqueue(b"other", queue=QUEUE, delay="1h", idempotency_key="used")
        with pytest.raises(kind) as blocking:
            producer.enqueue(b"x", **options)
    error = asyncio.run(awaited())
    assert (type(blocking.value), str(blocking.value)) == (type(error), str(error))


def test_an_outage_is_an_error_and_the_next_call_works_again(own_redis):
    """Nobody restarts a web server because Redis did."""
    server = own_redis(appendonly=True, appendfsync="always")
    with SyncProducer(settings_for(server.url, REDIS__TIMEOUT="500ms")) as producer:
        producer.enqueue(b"before", queue=QUEUE, delay="1h")
        server.stop()
        with pytest.raises(RedisUnavailable):
            producer.enqueue(b"meanwhile", queue=QUEUE, delay="1h")
        server.start()
        producer.enqueue(b"after", queue=QUEUE, delay="1h")


def test_a_first_call_that_fails_is_tried_anew_by_the_next(own_redis):
    """The application came up before Redis did."""
    server = own_redis()
    server.stop()
    with SyncProducer(settings_for(server.url), within_s=0.3) as producer:
        with pytest.raises(RedisUnavailable):
            producer.enqueue(b"too early", queue=QUEUE, delay="1h")
        server.start()
        producer.enqueue(b"hello", queue=QUEUE, delay="1h")


def test_mistakes_in_settings_are_said_by_the_first_call():
    with SyncProducer({"COATCHECK_RETRY__MAX_ATTEMPTS": "many"}) as producer, pytest.raises(SettingsError):
        producer.enqueue(b"hello", queue=QUEUE, delay="1h")


def test_a_backend_that_is_away_says_when_to_come_back(redis, shared_redis, s3_server):
    environ = settings_for(shared_redis.url, s3_server, ROUTING__WHEN_UNAVAILABLE="refuse")
    environ["COATCHECK_BACKENDS__S3__ENDPOINT_URL"] = "http://127.0.0.1:1"
    with SyncProducer(environ) as producer, pytest.raises(BackendUnavailable) as caught:
        producer.enqueue(LARGE, queue=QUEUE, delay="1h")
    assert caught.value.retry_after_s > 0


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_eight_threads_share_one_producer(redis, producer):
    """From the first call on, which all make at once: one of them starts what all of them use."""
    together = threading.Barrier(8)

    def work(_: int) -> list[str]:
        together.wait(10)
        return [str(producer.enqueue(b"x", queue=QUEUE, delay="1h").reference) for _ in range(100)]

    with ThreadPoolExecutor(8) as pool:
        references = [reference for some in pool.map(work, range(8)) for reference in some]
    assert len(set(references)) == 800
    assert delayed(redis) == set(references)
    assert sum(thread.name == "coatcheck producer" for thread in threading.enumerate()) == 1


def test_closing_waits_for_calls_in_other_threads(redis, environ):
    """Each call that began has an answer, and its job is there; each later one is told that it came too late."""
    producer = SyncProducer(environ)
    accepted: list[str] = []
    busy = threading.Event()

    def work() -> None:
        try:
            while True:
                accepted.append(str(producer.enqueue(b"x", queue=QUEUE, delay="1h").reference))
                busy.set()
        except RuntimeError:
            pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert busy.wait(10)
    producer.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert delayed(redis) == set(accepted)


# ---- fork ------------------------------------------------------------------------------------------------------------


def test_parent_and_child_both_produce_after_a_fork(redis, producer):
    """A producer that was used before the fork, as by a prefork server that sends a job while it starts."""
    first = producer.enqueue(b"x", queue=QUEUE, delay="1h")
    before = connections(redis)

    def work() -> None:
        for _ in range(50):
            producer.enqueue(b"child", queue="child", delay="1h")
        assert connections(redis) - before, "the child speaks on the parent's connections"
        producer.close()

    in_child(work)
    after = producer.enqueue(b"x", queue=QUEUE, delay="1h")
    assert delayed(redis) == {str(first.reference), str(after.reference)}
    assert len(delayed(redis, "child")) == 50
    assert connections(redis) & before, "the child closed the parent's connection"


def test_children_forked_while_threads_produce_neither_hang_nor_disturb(redis, producer):
    """Whatever the other threads hold at that moment is held by nobody in the child."""
    over = threading.Event()
    answered: list[str] = []

    def work() -> None:
        while not over.is_set():
            answered.append(str(producer.enqueue(b"x", queue=QUEUE, delay="1h").reference))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for child in range(5):
            in_child(lambda: [producer.enqueue(b"x", queue=f"child{child}", delay="1h") for _ in range(20)])  # noqa: B023  called at once
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert delayed(redis) == set(answered)
    children = [reference for child in range(5) for reference in delayed(redis, f"child{child}")]
    assert len({reference[-36:] for reference in (*children, *answered)}) == 100 + len(answered), "two have one uuid"


def test_a_fork_that_python_is_not_told_of_is_noticed(redis, environ, monkeypatch):
    """uWSGI forks in C, and runs Python's hooks only if it is told to."""
    with SyncProducer(environ) as producer:
        monkeypatch.setattr(blocking, "_KEEPERS", weakref.WeakSet())
        producer.enqueue(b"x", queue=QUEUE, delay="1h")
        in_child(lambda: producer.enqueue(b"x", queue=QUEUE, delay="1h"))
        producer.enqueue(b"x", queue=QUEUE, delay="1h")
    assert len(delayed(redis)) == 3


def test_a_child_of_a_child_produces(redis, producer):
    producer.enqueue(b"x", queue=QUEUE, delay="1h")

    def child() -> None:
        producer.enqueue(b"x", queue=QUEUE, delay="1h")
        in_child(lambda: producer.enqueue(b"x", queue=QUEUE, delay="1h"))
        producer.enqueue(b"x", queue=QUEUE, delay="1h")

    in_child(child)
    producer.enqueue(b"x", queue=QUEUE, delay="1h")
    assert len(delayed(redis)) == 5


def test_offloaded_payloads_survive_a_fork_too(redis, shared_redis, s3_server):
    """boto3's connections are as little to be shared as Redis's."""
    with SyncProducer(settings_for(shared_redis.url, s3_server)) as producer:
        producer.enqueue(LARGE, queue=QUEUE, delay="1h")

        def work() -> None:
            assert producer.enqueue(LARGE, queue=QUEUE, delay="1h").backend == "s3"

        in_child(work)
        assert producer.enqueue(LARGE, queue=QUEUE, delay="1h").backend == "s3"
    assert len(delayed(redis)) == 3


# ---- ends ------------------------------------------------------------------------------------------------------------


def test_closing_is_idempotent_and_leaves_no_thread_and_no_connection(redis, environ):
    producer = SyncProducer(environ)
    producer.enqueue(b"x", queue=QUEUE, delay="1h")
    producer.close()
    producer.close()
    assert connections(redis) == set()
    assert not any(thread.name == "coatcheck producer" for thread in threading.enumerate())
    with pytest.raises(RuntimeError, match="closed"):
        producer.enqueue(b"x", queue=QUEUE, delay="1h")


def test_one_that_was_never_used_opens_and_starts_nothing(redis, environ):
    before = threading.active_count()
    SyncProducer(environ).close()
    assert threading.active_count() == before
    assert connections(redis) == set()


def test_one_that_is_forgotten_closes_itself(redis, environ):
    """A script that drops it keeps neither its thread nor its connections."""
    producer = SyncProducer(environ)
    producer.enqueue(b"x", queue=QUEUE, delay="1h")
    del producer
    assert not any(thread.name == "coatcheck producer" for thread in threading.enumerate())


def test_nothing_holds_one_that_is_gone(environ):
    """What is registered for a fork stays registered: a producer made for every request would be a leak."""
    producer = SyncProducer(environ)
    keeper = weakref.ref(producer._keeper)
    assert keeper() in blocking._KEEPERS
    del producer
    gc.collect()
    assert keeper() is None


@pytest.mark.parametrize("payload", [b"x", LARGE], ids=["inline", "offloaded"])
def test_a_program_that_just_ends_does_so_cleanly(redis, shared_redis, s3_server, payload):
    """Nobody closes what a web framework made at import; no traceback may be its goodbye."""
    program = f"""
        from service.producing import SyncProducer
        producer = SyncProducer({settings_for(shared_redis.url, s3_server)!r})
        producer.enqueue({payload!r}, queue={QUEUE!r}, delay="1h")
        """
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert len(delayed(redis)) == 1
    assert connections(redis) == set()


def test_log_lines_go_where_the_application_wants_them(redis, environ, caplog):
    """To standard output, where structlog would write them, a command line tool writes its result."""
    program = f"""
        import logging
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
        from service.producing import SyncProducer
        with SyncProducer({environ!r}) as producer:
            producer.enqueue(b"x", queue={QUEUE!r}, delay="1h")
        """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == ""
    assert "service.wiring: event='started'" in ended.stderr
