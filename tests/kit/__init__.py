"""Real servers, and ways to make them fail. A kit that lies is worse than none: tests/unit/test_kit_*.py test it."""

import pytest

pytest.register_assert_rewrite("tests.kit.servers", "tests.kit.tasks", "tests.kit.waiting", "tests.kit.proxy")
