"""The public API is the one in tests/support/fixtures/public_api.json."""

import json

import pytest

from tests.support.public_api import FILE, public_api

RECORDED = json.loads(FILE.read_text())


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    return dict(json.loads(json.dumps(public_api())))


@pytest.mark.parametrize("part", RECORDED)
def test_public_api_is_as_recorded(part: str, found: dict[str, object]) -> None:
    assert found[part] == RECORDED[part], "update it with: python -m tests.support.public_api"


def test_every_part_is_recorded(found: dict[str, object]) -> None:
    assert set(found) == set(RECORDED)
