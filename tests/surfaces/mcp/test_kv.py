"""The two tools that agents of echoValue know."""

import pytest

from tests.support.agent import ERAS, served
from tests.support.clock import Clock

AT = {"group": "import", "key": "status"}
MONTH = 30 * 24 * 60 * 60


@pytest.mark.parametrize("era", ERAS)
async def test_value_saved_by_one_agent_is_read_by_another(era: str) -> None:
    async with served(era) as agent:
        missing = await agent("read_state", **AT)
        assert missing["status"] == "not_found"
        assert missing["hint"].endswith("Call holdlog_save_state to save one.")  # a tool that is there
        saved = await agent("save_state", **AT, value="running")
        assert saved | {"status": "ok", "namespace": "import", "key": "status", "version": 1} == saved
        await agent("save_state", **AT, value="done")
        read = await agent("read_state", **AT)
        assert (read["value"], read["version"], read["updated_by"]) == ("done", 2, "mcp")
        assert (await agent("get", namespace="import", key="status"))["value"] == "done"


@pytest.mark.parametrize(("ttl", "lives"), [({}, MONTH), ({"ttl": 0}, MONTH), ({"ttl": 86_400}, 86_400)])
async def test_saved_value_lives_for_its_ttl_or_thirty_days_by_default(ttl: dict[str, int], lives: int) -> None:
    clock = Clock()
    async with served(clock=clock) as agent:
        await agent("save_state", **AT, value="done", **ttl)
        assert (await agent("read_state", **AT))["expires_in_seconds"] == lives
        clock.pass_by(lives)
        assert (await agent("read_state", **AT))["status"] == "not_found"


async def test_non_text_values_and_invalid_ttls_are_refused() -> None:
    async with served() as agent:
        for wrong in ({"ttl": -1}, {"ttl": 315_360_001}, {"ttl": 1.5}, {"ttl": "60"}):
            assert (await agent.error("save_state", **AT, value="done", **wrong)).startswith("ttl: ")
        assert (await agent.error("save_state", **AT, value={"a": 1})).startswith("value: ")
        assert (await agent.error("save_state", group="", key="k", value="done")).startswith("namespace: ")
        assert (await agent("read_state", **AT))["status"] == "not_found"
