"""Where each library keeps delayed jobs: one file a library, all of the shape of service.advisor.delayed.Layout."""

from collections.abc import Sequence
from typing import Final

from service.advisor.delayed import Layout
from service.advisor.layouts.asynq import Asynq
from service.advisor.layouts.bullmq import BullMQ
from service.advisor.layouts.celery import Celery
from service.advisor.layouts.coatcheck import Coatcheck
from service.advisor.layouts.rq import RQ
from service.advisor.layouts.rtq import RTQ
from service.advisor.layouts.sidekiq import Sidekiq

#: In the order in which they are asked whose a key is: those whose names leave no doubt come first.
LAYOUTS: Final[Sequence[type[Layout]]] = (Coatcheck, Asynq, RTQ, RQ, BullMQ, Celery, Sidekiq)
