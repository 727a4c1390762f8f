"""The layouts that there are, in the order in which they are asked."""

from collections.abc import Mapping
from typing import Final

from service.inspector.asynq.layout import Asynq
from service.inspector.bullmq.layout import BullMQ
from service.inspector.coatcheck.layout import Coatcheck
from service.inspector.layout import Layout
from service.inspector.rtq.layout import Rtq

LAYOUTS: Final[Mapping[str, type[Layout]]] = {layout.name: layout for layout in (Coatcheck, Asynq, BullMQ, Rtq)}
