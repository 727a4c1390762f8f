"""The variables that Kubernetes puts into pods for every Service: not ours, though those of a Service called
`coatcheck`, `coatcheck-api` or `coatcheck-redis` begin like ours.

    <SERVICE>_SERVICE_HOST=10.0.0.7             <SERVICE>_PORT=tcp://10.0.0.7:8080
    <SERVICE>_SERVICE_PORT[_<NAME>]=8080        <SERVICE>_PORT_8080_TCP[_PROTO|_PORT|_ADDR]=…

https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables

Both name and value must be of that form, so that `COATCHECK_PORT=8080`, which someone meant for us, is not passed over.
"""

import re
from ipaddress import ip_address

_SERVICE = r"COATCHECK(?:_[A-Z0-9]+)*?"
_forms = tuple(
    (re.compile(f"{_SERVICE}_{name}"), re.compile(value))
    for name, value in (
        (r"SERVICE_HOST", r"(?P<address>.+)"),
        (r"SERVICE_PORT(_[A-Z0-9]+)*", r"[0-9]{1,5}"),
        (r"PORT(_[0-9]{1,5}_(TCP|UDP|SCTP))?", r"(tcp|udp|sctp)://.+"),
        (r"PORT_[0-9]{1,5}_(TCP|UDP|SCTP)_PROTO", r"tcp|udp|sctp"),
        (r"PORT_[0-9]{1,5}_(TCP|UDP|SCTP)_PORT", r"[0-9]{1,5}"),
        (r"PORT_[0-9]{1,5}_(TCP|UDP|SCTP)_ADDR", r"(?P<address>.+)"),
    )
)


def is_service_link(name: str, value: str) -> bool:
    """Did Kubernetes set this variable? Its names are in capitals, without `__`."""
    return any(_fits(form, name, content, value) for form, content in _forms)


def _fits(form: re.Pattern[str], name: str, content: re.Pattern[str], value: str) -> bool:
    match = content.fullmatch(value) if form.fullmatch(name) else None
    if match is None:
        return False
    address = match.groupdict().get("address")
    return address is None or _is_address(address)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
