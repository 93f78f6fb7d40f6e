"""Who holds a claim, and who may release it: the rule a second time, from design section 6 and the contract alone.

Nothing of the product is imported here.
"""

from typing import NamedTuple

Session = tuple[str, str]
"""Its source and its text: equal texts of two sources are two sessions."""


class Caller(NamedTuple):
    """What reaches holdlog with a call; None where it is missing. `token`: who was authenticated (None: the local
    user). `meta`: the name and text of what `_meta` says of the conversation. `option`: `--session` or `session=`.
    `process`: of a local caller, what the process is called. `receipt`: the one that it shows."""

    agent: str
    token: str | None = None
    meta: Session | None = None
    mcp: str | None = None
    header: str | None = None
    option: str | None = None
    process: str | None = None
    receipt: str | None = None

    @property
    def session(self) -> Session | None:
        """The first that is present."""
        if self.meta is not None:
            return (f"meta {self.meta[0]}", self.meta[1])
        given = {"mcp": self.mcp, "header": self.header, "option": self.option, "process": self.process}
        return next(((source, text) for source, text in given.items() if text is not None), None)


class Holder(NamedTuple):
    """Of a grant or a ticket. `receipt`: the one that was returned with it, where there was no session. `has_ended`:
    its session is known to have ended."""

    agent: str
    token: str | None
    session: Session | None
    receipt: str | None = None
    has_ended: bool = False


def holder_of(caller: Caller, receipt: str | None, has_ended: bool) -> Holder:
    """What a caller that was granted something became."""
    session = caller.session
    return Holder(caller.agent, caller.token, session, receipt, session is not None and has_ended)


def is_holder(holder: Holder, caller: Caller) -> bool:
    """Two missing sessions are never equal."""
    if (holder.agent, holder.token) != (caller.agent, caller.token):
        return False
    if holder.session is not None:
        return holder.session == caller.session
    return caller.session is None and caller.receipt is not None and caller.receipt == holder.receipt


def inherits(holder: Holder, caller: Caller) -> bool:
    """Whether an ended session of the same name and principal left it. The call must name that very resource."""
    return holder.has_ended and (holder.agent, holder.token) == (caller.agent, caller.token)


def claims(holder: Holder, caller: Caller) -> str:
    """What a claim of the very resource returns."""
    if is_holder(holder, caller):
        return "already_claimed"
    return "resumed" if inherits(holder, caller) else "busy"


def releases(holder: Holder, caller: Caller) -> str:
    """What a release that names the resource returns. By name and resource alone, which is without a session and
    without a receipt, it ends only a grant that was made without a session."""
    if is_holder(holder, caller) or inherits(holder, caller):
        return "released"
    same_name = (holder.agent, holder.token) == (caller.agent, caller.token)
    by_name_alone = caller.session is None and caller.receipt is None
    return "released" if same_name and by_name_alone and holder.session is None else "not_holder"


def releases_everything(holder: Holder, caller: Caller) -> bool:
    """Whether a release without a resource ends it."""
    return is_holder(holder, caller)


def guards(holder: Holder, caller: Caller) -> str:
    """What a write that relies on the grant returns."""
    return "ok" if is_holder(holder, caller) or inherits(holder, caller) else "fenced"


def keeps_place(holder: Holder, caller: Caller) -> bool:
    """Whether a call that queues for the same has the place of this ticket."""
    return is_holder(holder, caller) or inherits(holder, caller)


def nests(holder: Holder, caller: Caller) -> bool:
    """Whether the holder's claim lets in a caller that is a sub-agent of its name."""
    family = caller.agent.startswith(holder.agent + "/") and caller.token == holder.token
    return family and holder.session is not None and holder.session == caller.session
