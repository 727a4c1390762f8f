"""ops/compose.yaml and ops/kubernetes/ name settings, ports, paths and limits that live elsewhere."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from service.configuration.report import table
from service.settings import HttpSettings, load
from tests.house.test_layout import ROOT

COMPOSE = yaml.safe_load((ROOT / "ops" / "compose.yaml").read_text())
OBJECTS = [
    each
    for path in sorted((ROOT / "ops" / "kubernetes").glob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
]
ROLES = ("api", "dispatcher")
#: Answers under way get 5 s after the dispatcher's grace (service/serving.py); then the process still has to close.
AFTER_GRACE_S = 5


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
        needed_s = load(environment).dispatcher.grace_s + AFTER_GRACE_S
        assert int(COMPOSE["services"][role]["stop_grace_period"].removesuffix("s")) > needed_s
        waits_s = int(container(role).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [0])[-1])
        assert pod(role)["terminationGracePeriodSeconds"] > needed_s + waits_s


@pytest.mark.parametrize("role", ROLES)
def test_each_role_is_started_as_itself(role):
    assert COMPOSE["services"][role]["command"] == ["serve", "--role", role]
    assert container(role)["args"] == ["serve", "--role", role]
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
    assert {container(role)["image"] for role in ROLES} == {f"coatcheck:{version[1]}"}
