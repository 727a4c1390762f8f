"""An application's handlers, for the worker of ops/compose.yaml and as a beginning of your own."""

from pydantic import BaseModel

from service.worker import Context, Worker

worker = Worker()


class Email(BaseModel):
    to: str


@worker.task("send_email", timeout="30s", once="1d")
async def send_email(email: Email, context: Context) -> None:
    print("sent to", email.to, "as", context.id)  # noqa: T201  docker compose logs worker
