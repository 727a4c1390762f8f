"""Makes a base, builds, looks into the layers, runs every role, and prints a line for each thing shown."""

import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from ops.image import layers, machine
from ops.image.buildah import Buildah, Failed, Image
from ops.image.container import Container
from ops.image.jobs import pass_through
from service.child import free_port
from service.embedded import RedisServer, S3Server, valkey_binary

ROOT = Path(__file__).parents[2]
NAME, BUCKET = "coatcheck-image-check", "coats"
#: What a start imports, S3's client included.
_IMPORTS = "import service.cli, service.serving, service.wiring, service.api.app, storage_backends.s3_objects"
_MAX_IMAGE_MB = 300  #: the stand-in is about 130 MB; more than this, and something was taken along


def main(scratch: Path) -> None:
    buildah = Buildah(scratch / "buildah")
    base = default_base((ROOT / "Dockerfile").read_text())
    with step(f"a stand-in for {base}"):
        buildah.make_base(base, *machine.debian())
    with step("build"):
        buildah.build(NAME, ROOT, mounts=machine.mounts(scratch), env=machine.environment())
    image = buildah.image(NAME)
    with step("layers"):
        check_layers(buildah, image, buildah.image(base))
    with step("run"):
        run(image, buildah.mount(NAME))
    print("ops/image-check: all as it should be")


def default_base(dockerfile: str) -> str:
    found = re.search(r"(?m)^ARG BASE=(\S+)$", dockerfile)
    if found is None:
        raise Failed("the Dockerfile names no base")
    return found[1]


def check_layers(buildah: Buildah, image: Image, base: Image) -> None:
    needles = {machine.MARK, *machine.addresses()}
    added, wrong = layers.inspect(buildah.export(image.name), image, base, needles)
    if wrong:
        raise Failed("in the layers:\n  " + "\n  ".join(wrong[:40]))
    say(f"{added.files} files in our layers: no mark of the build's {len(needles)} words, no secret, all root's")
    say(f"size {_mb(added.image_bytes)} ({_mb(added.image_sent_bytes)} compressed, {_mb(added.sent_bytes)} of it ours)")
    require(added.image_bytes < _MAX_IMAGE_MB * 10**6, f"the image is larger than {_MAX_IMAGE_MB} MB")


def run(image: Image, root: Path) -> None:
    redis, s3 = RedisServer(valkey_binary()), S3Server()
    with ExitStack() as stack:
        for server in (redis, s3):
            stack.callback(server.stop)
            server.start()
        s3.make_bucket(BUCKET)
        env = {
            "COATCHECK_REDIS__URL": redis.url,
            "COATCHECK_ROUTING__OFFLOAD_TO": "s3",
            "COATCHECK_BACKENDS__S3__BUCKET": BUCKET,
            "COATCHECK_BACKENDS__S3__ENDPOINT_URL": s3.endpoint_url,
            "COATCHECK_BACKENDS__S3__REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "embedded",
            "AWS_SECRET_ACCESS_KEY": "embedded",
        }
        stopped_early(image, root, env)
        one_for_all(image, root, env, redis.url)
        one_each(image, root, env, redis.url)


def one_for_all(image: Image, root: Path, env: dict[str, str], redis_url: str) -> None:
    starts = [start_and_stop(image, root, env) for _ in range(2)]
    with closing(Container(image, root, free_port(), env)) as container:
        starts.append(container.ready())
        say(f"ready {min(starts):.2f} s after its start, the best of {len(starts)}")
        time.sleep(2)  # what a start leaves behind is freed by then
        status = container.status()
        say(f"idle memory {int(status['VmRSS'].split()[0]) / 1024:.0f} MiB")
        check_process(container, status)
        check_inside(container, image.config["Healthcheck"]["Test"][1:])
        pass_through(container.port, redis_url)
        stopped(container)
    say("default command: an inline and an offloaded job came through; SIGTERM ended it with 0")


def start_and_stop(image: Image, root: Path, env: dict[str, str]) -> float:
    with closing(Container(image, root, free_port(), env)) as container:
        took_s = container.ready()
        stopped(container)
    return took_s


def stopped_early(image: Image, root: Path, env: dict[str, str]) -> None:
    with closing(Container(image, root, free_port(), env)) as container:
        container.heeds_sigterm()
        require(
            container.output() == "", "it was slow to listen for SIGTERM: what it says at its start was there before"
        )
        stopped(container)
    say("SIGTERM ended it with 0 while it was starting, too")


def one_each(image: Image, root: Path, env: dict[str, str], redis_url: str) -> None:
    with ExitStack() as stack:
        containers = {}
        for role in ("api", "dispatcher"):
            arguments: Sequence[str] = ("serve", "--role", role)
            container = Container(image, root, free_port(), env, arguments)
            containers[role] = stack.enter_context(closing(container))
        for container in containers.values():
            container.ready()
        pass_through(containers["api"].port, redis_url)
        for container in containers.values():
            stopped(container)
    say("api and dispatcher apart: the same")


def check_process(container: Container, status: dict[str, str]) -> None:
    uids = set(status["Uid"].split())
    require(uids == {container.user.partition(":")[0]} and "0" not in uids, f"it runs as {uids}")
    require(int(status["CapEff"], 16) == 0 and status["Groups"] == "", "it has capabilities or groups")
    require(status["NSpid"].split()[-1] == "1", "it is not process 1")
    say(f"process 1, user {container.user}, no capabilities, no groups, read-only root")


def check_inside(container: Container, health: Sequence[str]) -> None:
    require(container.execute(health).returncode == 0, "its health check fails")
    elsewhere = {"COATCHECK_HTTP__PORT": str(free_port())}
    require(container.execute(health, elsewhere).returncode == 1, "its health check passes where nobody listens")
    require(container.execute(["python3", "-m", "pip", "--version"]).returncode == 1, "pip is left")
    verbose = container.execute(["python3", "-v", "-c", _IMPORTS])
    compiled = re.findall(r"(?m)^# code object from '?([^'\n]*\.py)'?$", verbose.stderr)
    require(verbose.returncode == 0 and not compiled, f"compiled at every start: {compiled[:10]}")
    say("health check passes; no pip; nothing is compiled at a start")


def stopped(container: Container) -> None:
    code = container.stop()
    require(code == 0, f"SIGTERM ended it with {code}:\n{container.output()}")


def require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Failed(otherwise)


@contextmanager
def step(name: str) -> Iterator[None]:
    began = time.monotonic()
    print(f"== {name}", flush=True)
    yield
    print(f"   {time.monotonic() - began:.0f} s", flush=True)


def say(line: str) -> None:
    print(f"   {line}", flush=True)


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 10**6:.0f} MB"


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except Failed as error:
        sys.exit(f"ops/image-check: {error}")
