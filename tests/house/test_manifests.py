"""ops/compose.yaml and ops/kubernetes/ name settings, ports, paths and limits that live elsewhere."""

import json
import re
import runpy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from service.configuration.report import table
from service.settings import HttpSettings, load
from service.worker import Worker
from tests.house.test_layout import ROOT

COMPOSE = yaml.safe_load((ROOT / "ops" / "compose.yaml").read_text())
OBJECTS = [
    each
    for path in sorted((ROOT / "ops" / "kubernetes").glob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
]
SERVING = ("api", "dispatcher")
ROLES = (*SERVING, "worker")
#: Answers under way get 5 s after the dispatcher's grace (service/serving.py); then the process still has to close. A
#: worker waits for those whom it cancels and tells Redis what became of the last jobs, too (service/worker/shift.py).
AFTER_GRACE_S = {"api": 5, "dispatcher": 5, "worker": 15}


def deployment(role: str) -> dict[str, Any]:
    (found,) = [each for each in OBJECTS if each["kind"] == "Deployment" and each["metadata"]["name"].endswith(role)]
    return found["spec"]


def pod(role: str) -> dict[str, Any]:
    return deployment(role)["template"]["spec"]


def container(role: str) -> dict[str, Any]:
    (only,) = pod(role)["containers"]
    return only


def config_map() -> dict[str, str]:
    (only,) = [each for each in OBJECTS if each["kind"] == "ConfigMap"]
    return only["data"]


def environments() -> Iterator[Mapping[str, str]]:
    """What each process would be started with."""
    for role in ROLES:
        yield COMPOSE["services"][role]["environment"]
        yield {**config_map(), **{each["name"]: "redis://redis:6379/0" for each in container(role)["env"]}}


def test_every_setting_that_is_named_is_one_and_has_a_value_that_can_be():
    known = {line.name for line in table()}
    for environment in environments():
        ours = {name for name in environment if name.startswith("COATCHECK_")}
        assert ours - known == set()
        assert load(environment).routing.offload_to == "s3"


@pytest.mark.parametrize("role", ROLES)
def test_there_is_time_to_stop(role):
    """Killed earlier, a dispatcher leaves its jobs to their leases: a minute late each."""
    for environment in environments():
        settings = load(environment)
        grace_s = settings.worker.grace_s if role == "worker" else settings.dispatcher.grace_s
        needed_s = grace_s + AFTER_GRACE_S[role]
        assert int(COMPOSE["services"][role]["stop_grace_period"].removesuffix("s")) > needed_s
        waits_s = int(container(role).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [0])[-1])
        assert pod(role)["terminationGracePeriodSeconds"] > needed_s + waits_s


@pytest.mark.parametrize("role", SERVING)
def test_each_role_is_started_as_itself(role):
    assert COMPOSE["services"][role]["command"] == ["serve", "--role", role]
    assert container(role)["args"] == ["serve", "--role", role]


def test_a_worker_is_started_with_the_handlers_that_are_there():
    """Both examples, and the image that one of them is started from, name the same module; it is the one beside it."""
    image = (ROOT / "ops" / "worker" / "Dockerfile").read_text()
    built = json.loads(re.search(r"(?m)^CMD (.*)$", image)[1])
    assert re.search(r"(?m)^FROM coatcheck$", image)
    assert COMPOSE["services"]["worker"]["volumes"] == ["./worker:/app:ro"]
    for command in (COMPOSE["services"]["worker"]["command"], container("worker")["args"], built):
        assert command[0] == "worker"
        module, _, name = command[1].partition(":")
        found = runpy.run_path(str(ROOT / "ops" / "worker" / f"{module}.py"))[name]
        assert isinstance(found, Worker)
        assert set(command[2::2]) == {"--queue"}
        assert all(re.fullmatch(r"[a-z]+(=\d)?", each) for each in command[3::2])


@pytest.mark.parametrize("role", ROLES)
def test_a_deployment_finds_its_own_pods(role):
    assert (
        deployment(role)["selector"]["matchLabels"].items()
        <= deployment(role)["template"]["metadata"]["labels"].items()
    )


@pytest.mark.parametrize("role", ROLES)
def test_probes_ask_what_they_mean_on_the_port_that_is_listened_on(role):
    """A liveness probe on /readyz would restart every process when Redis is away."""
    (port,) = container(role)["ports"]
    assert port["containerPort"] == HttpSettings().port
    probes = {name: container(role)[f"{name}Probe"]["httpGet"] for name in ("readiness", "liveness")}
    assert probes == {
        "readiness": {"path": "/readyz", "port": port["name"]},
        "liveness": {"path": "/healthz", "port": port["name"]},
    }


def test_the_service_is_the_api_s():
    (service,) = [each["spec"] for each in OBJECTS if each["kind"] == "Service"]
    assert service["selector"].items() <= deployment("api")["template"]["metadata"]["labels"].items()
    assert service["ports"][0]["targetPort"] == container("api")["ports"][0]["name"]


@pytest.mark.parametrize("role", ROLES)
def test_processes_may_do_no_more_than_they_need(role):
    composed, contained = COMPOSE["services"][role], container(role)["securityContext"]
    assert composed["read_only"] is True
    assert composed["cap_drop"] == ["ALL"]
    assert contained["readOnlyRootFilesystem"] is True
    assert contained["allowPrivilegeEscalation"] is False
    assert contained["capabilities"] == {"drop": ["ALL"]}
    assert pod(role)["securityContext"]["runAsNonRoot"] is True


def test_redis_refuses_when_full_and_remembers():
    command = COMPOSE["services"]["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--appendonly"] == "yes"
    assert "--maxmemory" in options


def test_only_this_machine_reaches_what_compose_starts():
    """Nobody is asked who he is."""
    for service in COMPOSE["services"].values():
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))


def test_images_have_a_version():
    """The S3 stand-in has the one that the tests run against; Coatcheck's is the project's."""
    images = {service["image"] for service in COMPOSE["services"].values()} - {"coatcheck"}
    assert all(re.search(r":\d", image) for image in images)
    moto = re.search(r"(?m)^moto==(\S+)", (ROOT / "ops" / "constraints.txt").read_text())
    version = re.search(r'(?m)^version = "(.*)"$', (ROOT / "pyproject.toml").read_text())
    assert f"motoserver/moto:{moto[1]}" in images
    assert {container(role)["image"] for role in SERVING} == {f"coatcheck:{version[1]}"}
