"""For applications in Python: jobs straight into Redis and S3, without HTTP between. Same checks, routing and errors.

    async with open_producer() as producer:                      asyncio
        accepted = await producer.enqueue(b"hello", queue="emails", delay="30s")

    producer = SyncProducer()                                    Django, Flask, Celery; threads, prefork
    accepted = producer.enqueue(b"hello", queue="emails", delay=timedelta(minutes=5))

Settings come from the environment, as the service's own; errors are those of service/errors.py.

opening.py    open_producer
blocking.py   SyncProducer
engine.py     a producer in a thread of its own, for as long as its process lasts
"""

from service.intake import NewJob
from service.producer import Accepted, Answer, Producer
from service.producing.blocking import SyncProducer
from service.producing.opening import open_producer

__all__ = ["Accepted", "Answer", "NewJob", "Producer", "SyncProducer", "open_producer"]
