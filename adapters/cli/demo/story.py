"""The demo's story from start to finish: the agents' servers, then scene after scene."""

from collections.abc import Sequence
from pathlib import Path

from holdlog.adapters.cli.demo.agents import connected
from holdlog.adapters.cli.demo.budget import exact, overspent
from holdlog.adapters.cli.demo.claim import RESOURCE, queued
from holdlog.adapters.cli.demo.log import replayed
from holdlog.adapters.cli.demo.screen import Screen


async def play(screen: Screen, command: Sequence[str], folder: Path) -> None:
    """Play all scenes on a fresh file in `folder`. Raises Wrong at the first step that fails.

    `command`: the command that starts a holdlog server, without its arguments.
    """
    db, report = folder / "state.db", folder / RESOURCE
    for part in (".git/objects", ".git/refs", "src"):  # a repository, whatever is around the temporary folder
        (folder / part).mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    report.write_text("# Report\n", encoding="utf-8")
    async with connected(screen.timeline.agents, [*command, "--db", str(db), "--tools", "all"], folder) as (ada, ben):
        names = f"{screen.paint(ada.name, ada.name)} and {screen.paint(ben.name, ben.name)}"
        screen.line(f"   {names}: two agents, each with its own server process")
        screen.line(f"   ({ada.server}, MCP over stdio), and one new store that both servers share")
        for agent in (ada, ben):
            await agent.call("list")  # connections and caches are warm before measurements start
            await agent.call("status")
        await overspent(screen, ada, ben)
        await exact(screen, ada, ben)
        await queued(screen, ada, ben)
        await replayed(screen, ada, ben, db)
