"""What `coatcheck config` shows, and the table that the README's is held to."""

import json

import pytest

from service.configuration.report import effective, table
from service.settings import load
from tests.kit.settings import named_file


def shown(environ):
    return {line.name: line for line in effective(load(environ))}


def test_every_setting_is_in_the_table_with_type_and_meaning():
    lines = {line.name: line for line in table()}
    assert len(lines) == len(table())
    assert all(line.type and line.meaning for line in table())
    assert lines["COATCHECK_DISPATCHER__LEASE"][1:3] == ("duration", "60s")
    assert lines["COATCHECK_IDEMPOTENCY_TTL"][1:3] == ("duration", "24h")
    assert lines["COATCHECK_QUEUES__<QUEUE>__MAX_READY_BYTES"][1:3] == ("size", "256MiB")
    assert lines["COATCHECK_ROUTING__WHEN_UNAVAILABLE"][1:3] == ("inline or refuse", "inline")
    assert lines["COATCHECK_BACKENDS__S3__TIMEOUT"][1:3] == ("duration", "10s")
    assert lines["COATCHECK_REDIS__URL"].secret


def test_each_value_has_its_origin(tmp_path):
    """The first question to a setting that does nothing: does the process see it?"""
    environ = named_file(tmp_path, '[dispatcher]\nbatch = 10\nlease = "90s"\n')
    lines = shown(environ | {"COATCHECK_DISPATCHER__BATCH": "20"})
    assert lines["COATCHECK_DISPATCHER__BATCH"][1:3] == ("20", "environment")
    assert lines["COATCHECK_DISPATCHER__LEASE"][1:3] == ("90s", "file")
    assert lines["COATCHECK_DISPATCHER__INTERVAL"][1:3] == ("1s", "default")


def test_what_is_shown_can_be_typed_in_again():
    """`coatcheck config` is also how a configuration is moved elsewhere."""
    environ = {"COATCHECK_ROUTING__INLINE_MAX_DELAY": "1.5h", "COATCHECK_QUEUES__MAIL__MAX_READY": "7"}
    environ["COATCHECK_BACKENDS__S3__BUCKET"] = "coats"
    lines = effective(load(environ))
    again = load({line.name: line.value for line in lines})
    assert dict(again) == dict(load(environ))


def test_names_that_the_environment_cannot_spell_are_shown_as_json_subscripts():
    lines = shown({"COATCHECK_QUEUES": json.dumps({"acme:Mail": {"max_ready": 5}})})
    assert lines['COATCHECK_QUEUES["acme:Mail"]["max_ready"]'][1:3] == ("5", "environment")


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("rediss://user:hunter2@redis:6380/1", "rediss://user:***@redis:6380/1"),
        ("redis://:hunter2@redis", "redis://:***@redis"),
        ("redis://redis/0?password=hunter2&db=1", "redis://redis/0?password=***&db=1"),
        ("redis://:hunter2@[fd00::7]:6379", "redis://:***@[fd00::7]:6379"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
    ],
)
def test_a_password_is_masked_and_the_rest_of_its_url_is_not(url, masked):
    assert shown({"COATCHECK_REDIS__URL": url})["COATCHECK_REDIS__URL"].value == masked
