"""Variables that Kubernetes sets, and that begin like ours."""

import pytest

from service.settings import load
from tests.kit.settings import the_mistake

LINKS = {
    "_SERVICE_HOST": "10.0.0.7",
    "_SERVICE_PORT": "8080",
    "_SERVICE_PORT_HTTP": "8080",
    "_PORT": "tcp://10.0.0.7:8080",
    "_PORT_8080_TCP": "tcp://10.0.0.7:8080",
    "_PORT_8080_TCP_PROTO": "tcp",
    "_PORT_8080_TCP_PORT": "8080",
    "_PORT_8080_TCP_ADDR": "fd00::7",
}


@pytest.mark.parametrize(
    "service", ["COATCHECK", "COATCHECK_API", "COATCHECK_REDIS", "COATCHECK_HTTP", "COATCHECK_A_2"]
)
def test_kubernetes_service_links_are_passed_over(service):
    """The pod would not start in a namespace with a Service of our name, which is what everybody calls it."""
    assert load({service + rest: value for rest, value in LINKS.items()}).http.port == 8080


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COATCHECK_PORT", "8080"),
        ("COATCHECK_HTTP_PORT", "8080"),
        ("COATCHECK_SERVICE_HOST", "0.0.0.0:80"),
        ("COATCHECK_HTTP__PROT", "tcp://10.0.0.7:8080"),
        ("coatcheck_port", "tcp://10.0.0.7:8080"),
    ],
)
def test_what_only_resembles_a_service_link_is_a_mistake(name, value):
    """Whoever typed it wanted something."""
    assert the_mistake({name: value}).startswith(f"{name}: is no setting")
