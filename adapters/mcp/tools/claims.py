"""The tools for claims."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastmcp import Context
from pydantic import Field

from holdlog.adapters.api.claims import responses
from holdlog.adapters.mcp.tools.group import NameList, ToolGroup, number, tool
from holdlog.adapters.policy.in_force import rule_of
from holdlog.domain.refusals import InvalidError


class ClaimTools(ToolGroup):
    """Group `claims`."""

    @tool(
        "Claim a resource",
        responses.Claimed,
        responses.AlreadyClaimed,
        responses.Busy,
        responses.Deadlock,
        responses.Expired,
        idempotent=True,
    )
    async def claim(
        self,
        ctx: Context,
        resource: Annotated[
            str, Field(description="A path such as src/main.py; src/ for all below it; or custom://<name>")
        ],
        agent: Annotated[
            str,
            Field(
                description="Your tool's name and four random characters, for example claude-7f3a; a sub-agent"
                " appends /task"
            ),
        ],
        also: Annotated[NameList | None, Field(description="More resources to claim, all or nothing")] = None,
        alternatives: Annotated[
            list[str] | None,
            Field(
                description="If resource is not free, claim the first of these that is; cannot be combined with also"
            ),
        ] = None,
        lease_seconds: Annotated[
            float | None, number("Renewed while you work; default usually 300", minimum=1, maximum=86400)
        ] = None,
        wait_seconds: Annotated[float, number("Wait this long in the queue; about 50 at most", minimum=0)] = 0,
        mode: Annotated[
            Literal["exclusive", "shared"], Field(description="shared: other agents may share it")
        ] = "exclusive",
        note: Annotated[str | None, Field(description="Shown to other agents, e.g. ten more minutes")] = None,
        receipt: Annotated[str | None, Field(description="The receipt in your claim's response, if it had one")] = None,
    ) -> Any:
        """Claim a resource before you modify it: call this before the first edit of a file or other shared resource.
        claimed or already_claimed: you hold it; edit it, then call release(). The claim expires if you stop working.
        busy: another agent holds it; work on something else, or call again with wait_seconds=30 to queue. deadlock:
        release one of your claims first."""
        self._refuse_human({"resource": [resource], "also": also or (), "alternatives": alternatives or ()})
        return await self.claim_or_queue(
            ctx,
            self.requests.claims.claim(
                resource, agent, also or (), alternatives or (), lease_seconds, wait_seconds, mode, note, receipt
            ),
        )

    @tool(
        "Release a claim",
        responses.Released,
        responses.AlreadyFree,
        responses.NeverClaimed,
        responses.NotHolder,
        responses.Expired,
        idempotent=True,
    )
    async def release(
        self,
        agent: Annotated[str, Field(description="The name you claimed with")],
        resource: Annotated[str | None, Field(description="If omitted: all that you hold or wait for")] = None,
        also: Annotated[NameList | None, Field(description="More resources")] = None,
        outcome: Annotated[
            Literal["released", "modified", "created", "deleted", "moved"] | None,
            Field(description="What you did to it; shown to the next holder"),
        ] = None,
        moved_to: Annotated[str | None, Field(description="Its new path, only with outcome moved")] = None,
        note: Annotated[str | None, Field(description="Shown to the next holder")] = None,
        receipt: str | None = None,
    ) -> Any:
        """Release your claim as soon as your edits are done; the next agent in the queue gets it at once.
        not_holder or expired: you no longer held it, and nothing changed."""
        return await self.write(
            self.requests.claims.release(resource, agent, also or (), outcome, moved_to, note, receipt=receipt)
        )

    @tool("Show who holds a resource", responses.Available, responses.Held, responses.Board, read_only=True)
    async def status(
        self,
        resource: Annotated[str | None, Field(description="If omitted: all claims and queues")] = None,
        version: Annotated[int | None, Field(description="Version of your claim, to check that it is current")] = None,
        agent: Annotated[str | None, Field(description="Only this agent and its sub-agents")] = None,
        after: Annotated[str | None, Field(description="next_after of the previous page")] = None,
    ) -> Any:
        """Report whether a resource is available, or who holds it and since when."""
        if resource is None:
            if version is not None:
                raise InvalidError("version: requires resource; pass the resource that the version belongs to")
            return await self.read(self.requests.claims.board(agent, after=after))
        return await self.read(self.requests.claims.status(resource, version))

    @tool("Wait until a resource is free", responses.Available, responses.WaitTimeout, read_only=True)
    async def wait(
        self,
        ctx: Context,
        resource: str,
        timeout_seconds: Annotated[float, number("About 50 at most")] = 30,
    ) -> Any:
        """Wait until a claimed resource is free. This only notifies you; it does not give you the claim: call claim()
        next. To queue for it, use claim() with wait_seconds instead."""
        return await self.wait_for(ctx, self.requests.claims.wait(resource, timeout_seconds))

    def _refuse_human(self, named: Mapping[str, Sequence[str]]) -> None:
        """Refuse files that only a person may change: hooks deny their edit. Raises InvalidError."""
        workspaces = self.requests.rules.settings.workspaces
        if workspaces is None:
            return
        for argument, resources in named.items():
            for resource in resources:
                rule = rule_of(workspaces.located, resource)[1]
                if rule.mode == "human":
                    raise InvalidError(
                        f"{argument}: only a person may change this file ({rule.source}); describe the change that you"
                        " need to your user instead"
                    )


class AdminTools(ToolGroup):
    """Group `admin`."""

    @tool("Register yourself", responses.RegisteredAgent, idempotent=True)
    async def register(
        self, agent: str, name: str | None = None, model: str | None = None, purpose: str | None = None
    ) -> Any:
        """Register what status() shows about you: a name for people, your model, and what you work on."""
        return await self.write(self.requests.claims.register(agent, name, model, purpose))
