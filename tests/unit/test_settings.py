"""Settings: what is read from where, and what holds where nothing is said."""

import dataclasses
import json
import os

import pytest
from pydantic import ValidationError

from service.settings import load
from tests.kit.settings import named_file, the_mistake


def test_without_an_environment_the_defaults_are_the_designs():
    """The README's table promises these."""
    settings = load({})
    assert settings.redis.url == "redis://localhost:6379/0"
    assert (settings.http.host, settings.http.port) == ("127.0.0.1", 8080)
    assert (settings.max_payload_bytes, settings.idempotency_ttl_s) == (16 * 2**20, 86_400)
    assert (settings.dispatcher.interval_s, settings.dispatcher.batch, settings.dispatcher.lease_s) == (1, 500, 60)
    assert (settings.routing.offload_to, settings.routing.inline_max_delay_ms) == ("", 900_000)
    assert (settings.retry.backoff_min_s, settings.retry.backoff_max_s) == (1, 600)
    assert (settings.memory.fallback_watermark, settings.memory.accept_watermark) == (0.8, 0.9)
    assert list(settings.backends) == ["redis"]


def test_only_the_environment_that_is_handed_in_is_read(monkeypatch):
    """Else a developer's shell would decide what the tests see."""
    monkeypatch.delenv("COATCHECK_TEST_REDIS", raising=False)  # of this run of the tests; no setting
    monkeypatch.setitem(os.environ, "COATCHECK_KEY_PREFIX", "elsewhere")
    assert load({}).key_prefix == "coatcheck"
    assert load(os.environ).key_prefix == "elsewhere"


def test_names_in_the_environment_may_be_in_any_case():
    assert load({"coatcheck_Dispatcher__batch": "7"}).dispatcher.batch == 7


def test_settings_cannot_be_changed():
    """Components keep what they were given: a change would reach some of them."""
    settings = load({"COATCHECK_QUEUES__MAIL__MAX_READY": "5"})
    with pytest.raises(ValidationError):
        settings.dispatcher.batch = 3
    with pytest.raises(TypeError):
        settings.queues["other"] = settings.queue("mail")
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.backends["redis"].kind = "s3"


def test_durations_and_sizes_have_units():
    settings = load({"COATCHECK_DISPATCHER__INTERVAL": "250ms", "COATCHECK_MAX_PAYLOAD_BYTES": "16KiB"})
    assert settings.dispatcher.interval_s == 0.25
    assert settings.max_payload_bytes == 16384


def test_a_file_is_read_and_the_environment_wins_setting_by_setting(tmp_path):
    environ = named_file(tmp_path, '[dispatcher]\nbatch = 10\nlease = "2m"\n[queues."acme:Mail"]\nmax_ready = 7\n')
    settings = load(environ | {"COATCHECK_DISPATCHER__BATCH": "20"})
    assert (settings.dispatcher.batch, settings.dispatcher.lease_s) == (20, 120)
    assert settings.queue("acme:Mail").max_ready == 7


def test_json_holds_the_names_that_the_environment_cannot_spell():
    settings = load({"COATCHECK_QUEUES": '{"acme:Mail": {"max_ready": 7}}', "COATCHECK_TENANTS": '{"big-co": {}}'})
    assert settings.queue("acme:Mail").max_ready == 7
    assert settings.tenant_known("big-co")


def test_an_empty_group_takes_nothing_away_from_what_is_set_elsewhere():
    """A pruned mistake, too, must not come back out of the group that it was put into."""
    environ = {"COATCHECK_QUEUES": "{}", "COATCHECK_QUEUES__MAIL__MAX_READY": "5"}
    assert load(environ).queue("mail").max_ready == 5
    assert "not an integer" in the_mistake(environ | {"COATCHECK_QUEUES__MAIL__MAX_READY": "five"})


def test_a_variable_of_its_own_wins_over_the_json_of_its_group():
    environ = {
        "COATCHECK_QUEUES__MAIL__MAX_READY": "6",
        "COATCHECK_QUEUES": '{"mail": {"max_ready": 5, "max_attempts": 2}}',
    }
    mail = load(environ).queue("mail")
    assert (mail.max_ready, mail.max_attempts) == (6, 2)


def test_a_queue_has_its_own_values_and_else_the_defaults():
    environ = {"COATCHECK_QUEUES__MAIL__READY_KEY": "{mail}:jobs", "COATCHECK_QUEUES__MAIL__MAX_ATTEMPTS": "3"}
    settings = load(environ)
    assert settings.ready_keys() == {"mail": "{mail}:jobs"}
    assert (settings.max_attempts("mail"), settings.max_attempts("other")) == (3, 8)
    assert (settings.queue("other").max_ready, settings.queue("other").max_ready_bytes) == (10_000, 256 * 2**20)
    assert settings.queue("mail").offload_to is None


def test_without_a_list_of_tenants_any_well_formed_one_is_known_and_with_one_only_they_are():
    """Whoever lists tenants wants a typo in a client's header to be an error, not a new tenant with default rules."""
    assert load({}).tenant_known("anyone")
    assert not load({}).tenant_known("No One")
    listed = load({"COATCHECK_TENANTS__ACME__ROLLOUT_PERCENT": "5"})
    assert (listed.tenant_known("acme"), listed.tenant_known("anyone")) == (True, False)


def test_no_secret_is_in_the_settings_repr():
    assert "hunter2" not in repr(load({"COATCHECK_REDIS__URL": "redis://:hunter2@redis"}))


def test_queues_may_share_a_ready_list():
    """A consumer of both then reads one list; each job still enters it once."""
    both = {name: {"ready_key": "work"} for name in ("mail", "sms")}
    assert load({"COATCHECK_QUEUES": json.dumps(both)}).ready_keys() == {"mail": "work", "sms": "work"}
