"""Mistakes in the settings: all at once, under the names that were typed, without secrets."""

import json

import pytest

from service.configuration.mistakes import SettingsError
from service.errors import CannotStart
from service.settings import load
from tests.kit.settings import mistakes, named_file, the_mistake


def test_all_mistakes_are_reported_at_once_each_under_the_name_that_was_typed(tmp_path):
    """One a restart would mean ten restarts, in a pipeline that takes minutes for each."""
    environ = named_file(tmp_path, '[dispatcher]\nlease = 60\n[queues."acme:mail"]\nmax_ready = "many"\n')
    environ |= {"coatcheck_http__port": "http", "COATCHECK_TENANTS": '{"A": {}}', "COATCHECK_LOG__FORMAT": "xml"}
    found = mistakes(environ | {"COATCHECK_MEMORY__ACCEPT_WATERMARK": "0.5", "COATCHECK_KEY_PREFX": "x"})
    starts = [
        "dispatcher.lease (in ",
        'queues."acme:mail".max_ready (in ',
        "coatcheck_http__port: ",
        'COATCHECK_TENANTS["A"]: ',
        "COATCHECK_LOG__FORMAT: ",
        "COATCHECK_MEMORY__ACCEPT_WATERMARK: ",
        "COATCHECK_KEY_PREFX: ",
    ]
    assert len(found) == len(starts)
    assert all(any(mistake.startswith(start) for mistake in found) for start in starts)


def test_an_error_in_the_settings_keeps_the_service_from_starting():
    assert issubclass(SettingsError, CannotStart)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("COATCHECK_DISPATCHER__INTERVALL", "COATCHECK_DISPATCHER__INTERVAL"),
        ("COATCHECK_DISPACHER__INTERVAL", "COATCHECK_DISPATCHER__INTERVAL"),
        ("COATCHECK_DISPATCHER__INTERVAL_S", "COATCHECK_DISPATCHER__INTERVAL"),
        ("COATCHECK_HTTP_PORT", "COATCHECK_HTTP__PORT"),
        ("COATCHECK_PORT", "COATCHECK_HTTP__PORT"),
        ("COATCHECK_REDIS_URL", "COATCHECK_REDIS__URL"),
        ("COATCHECK_DISPATCHER__BACKOFF_MIN", "COATCHECK_RETRY__BACKOFF_MIN"),
        ("COATCHECK_MAX_PAYLOAD", "COATCHECK_MAX_PAYLOAD_BYTES"),
        ("COATCHECK_ROUTING__INLINE_MAX_DELAY_MS", "COATCHECK_ROUTING__INLINE_MAX_DELAY"),
        ("COATCHECK_TENANTS__ACME__OFLOAD_TO", "COATCHECK_TENANTS__ACME__OFFLOAD_TO"),
        ("COATCHECK_QUEUES__MAIL__MAX_REDY", "COATCHECK_QUEUES__MAIL__MAX_READY"),
    ],
)
def test_a_misspelt_name_is_reported_with_the_nearest_right_one(typed, meant):
    """Else a misspelt setting would silently be its default."""
    text = the_mistake({typed: "8080"})
    assert text.startswith(f"{typed}: ")
    assert text.endswith(f"{meant}?")


def test_a_misspelt_name_in_a_file_is_answered_in_the_files_spelling(tmp_path):
    text = the_mistake(named_file(tmp_path, '[queues."a:b"]\nmax_redy = 1\n'))
    assert text.startswith('queues."a:b".max_redy (in ')
    assert 'did you mean queues."a:b".max_ready' in text


@pytest.mark.parametrize("name", ["COATCHECK_TENANTS__ACME__TOKEN", "COATCHECK_SWEEPER__FULL_EVERY"])
def test_a_setting_of_a_feature_that_is_not_there_yet_is_no_setting(name):
    """One that does nothing would be a lie: a token that nobody checks protects nothing."""
    assert the_mistake({name: "7d"}) == f"{name}: is no setting"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COATCHECK_REDIS__URL", "http://user:hunter2@redis"),
        ("COATCHECK_REDIS__URL", "redis://user:hunter2@redis:port/0"),
        ("COATCHECK_REDIS__URL", "redis://:hunter2@redis/zero"),
        ("COATCHECK_REDIS__URL", "redis://:12/hunter2@redis/0"),
        ("COATCHECK_REDIS__URL", "redis://:12?hunter2@redis/0"),
        ("COATCHECK_REDIS__URL", "redis://user:12#hunter2@redis/0"),
        ("COATCHECK_REDIS__URL", "redis://user:12?hunter2@redis/0"),
        ("COATCHECK_TENANTS__ACME__TOKEN", "hunter2"),
        ("COATCHECK_TENANTS", '{"acme": {"token": "hunter2"}}'),
        ("COATCHECK_TENANTS", '{"acme": {"token": "hunter2"'),
        ("COATCHECK_REDIS", '{"url": "hunter2"}'),
        ("COATCHECK_REDIS__PASSWORD", "hunter2"),
        ("COATCHECK_URL", "user:hunter2@host"),
    ],
)
def test_no_secret_is_shown_with_a_mistake(name, value):
    """Start-up errors are logged, and logs are read by many."""
    with pytest.raises(SettingsError) as caught:
        load({name: value})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("COATCHECK_DISPATCHER__INTERVAL", "30", "not a duration"),
        ("COATCHECK_DISPATCHER__INTERVAL", "2h", "between 10ms and 1m"),
        ("COATCHECK_DISPATCHER__INTERVAL", "-1s", "negative"),
        ("COATCHECK_DISPATCHER__BATCH", "1001", "between 1 and 1000"),
        ("COATCHECK_DISPATCHER__BATCH", "1.5", "not an integer"),
        ("COATCHECK_DISPATCHER", '{"batch": true}', "not an integer"),
        ("COATCHECK_ROUTING__ROLLOUT_PERCENT", "101", "between 0 and 100"),
        ("COATCHECK_ROUTING__ROLLOUT_PERCENT", "nan", "not a number"),
        ("COATCHECK_MEMORY__ACCEPT_WATERMARK", "90", "between 0.01 and 1"),
        ("COATCHECK_ROUTING__INLINE_MAX_BYTES", "16MB", "not a size"),
        ("COATCHECK_ROUTING__WHEN_UNAVAILABLE", "wait", "'inline' or 'refuse'"),
        ("COATCHECK_HTTP__PORT", "65536", "between 0 and 65535"),
        ("COATCHECK_KEY_PREFIX", "a{b}", "ASCII letter"),
        ("COATCHECK_URL", "localhost:8080", "URL"),
        ("COATCHECK_REDIS__URL", "redis://localhost/zero", "database's number"),
        ("COATCHECK_REDIS__URL", "redis://localhost/0?protocol=3", "option that is not known"),
        ("COATCHECK_REDIS__URL", "redis://localhost/0?ssl_cert_reqs=none", "option that is not known"),
        ("COATCHECK_REDIS__URL", "unix:///run/redis.sock?decode_responses=1", "option that is not known"),
        ("COATCHECK_DISPATCHER", "fast", "must be a JSON object"),
        ("COATCHECK_DISPATCHER", "[1]", "group of settings"),
        ("COATCHECK_QUEUES", '{"a::b": {}}', "not a queue name"),
        ("COATCHECK_QUEUES__MAIL__READY_KEY", "", "at least 1"),
        ("COATCHECK_CONFIG_FILE", "/no/such/file", "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(name, value, fault):
    text = the_mistake({name: value})
    assert text.startswith(name)
    assert fault in text


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        ({"COATCHECK_DISPATCHER__LEASE": "20s"}, "twice FETCH_TIMEOUT"),
        ({"COATCHECK_DISPATCHER__FETCH_TIMEOUT": "31s"}, "twice FETCH_TIMEOUT"),
        ({"COATCHECK_RETRY__BACKOFF_MIN": "11m"}, "BACKOFF_MAX"),
        ({"COATCHECK_MEMORY__FALLBACK_WATERMARK": "0.95"}, "ACCEPT_WATERMARK"),
        ({"COATCHECK_ROUTING__OFFLOAD_TO": "s3"}, "no configured backend"),
        ({"COATCHECK_ROUTING__OFFLOAD_TO": "redis"}, "leave this empty"),
        ({"COATCHECK_TENANTS__ACME__OFFLOAD_TO": "s3"}, "no configured backend"),
        ({"COATCHECK_QUEUES__MAIL__OFFLOAD_TO": "s3"}, "no configured backend"),
        ({"COATCHECK_QUEUES__MAIL__READY_KEY": "coatcheck:{mail}:dead"}, "own keys"),
        ({"COATCHECK_WORKER__BACKOFF_MIN": "11m"}, "BACKOFF_MAX"),
        ({"COATCHECK_WORKER__PATIENCE": "10s"}, "HEARTBEAT"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_under_the_one_that_was_typed(environ, fault):
    (name,) = environ
    text = the_mistake(environ)
    assert text.startswith(f"{name}: ")
    assert fault in text


def test_queues_that_share_a_ready_key_agree_on_what_it_is():
    """Else one of them would find it unusable as soon as the other has put a job there."""
    queues = {"mail": {"ready_key": "jobs"}, "sms": {"ready_key": "jobs", "ready_kind": "stream"}}
    assert "'jobs' is queue 'mail'" in the_mistake({"COATCHECK_QUEUES": json.dumps(queues)})
    load({"COATCHECK_QUEUES": json.dumps({**queues, "sms": {"ready_key": "jobs"}})})


def test_a_queue_with_capitals_is_refused_in_a_variables_name():
    """Names of variables have no case here: `Mail` would silently configure the queue `mail`."""
    assert "use JSON" in the_mistake({"COATCHECK_QUEUES__Mail__MAX_READY": "5"})


def test_a_setting_that_is_there_twice_is_refused():
    """Which of both would hold depends on the order of the environment."""
    text = the_mistake({"COATCHECK_KEY_PREFIX": "a", "coatcheck_key_prefix": "b"})
    assert "set twice" in text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("key_prefix = ", "is no TOML"),
        ("config_file = 'x'", "cannot name another"),
        ("dispatcher = 5", "group of settings"),
    ],
)
def test_a_file_that_cannot_be_used_is_reported(tmp_path, text, fault):
    assert fault in the_mistake(named_file(tmp_path, text))
