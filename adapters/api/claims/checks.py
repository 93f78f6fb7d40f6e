"""Checks whether files are held by others: what a git hook asks before a commit. Reads only."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from holdlog.adapters.api.claims import presenter
from holdlog.adapters.api.claims.responses import Held
from holdlog.adapters.api.request import Query
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.values.responses import Part, Result, Time
from holdlog.domain.claims.board import ClaimBoard, LiveHold
from holdlog.domain.claims.board_storage import load_board
from holdlog.domain.claims.lease import Lease
from holdlog.domain.names import acts_for
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import InvalidError

WhyNot = Literal["unknown_caller", "session_ended", "sub_agent", "user_name", "other_workspace", "policy"]


class Committer(NamedTuple):
    """Who wants to change the files. `session`: the hash of one that was named explicitly; claims of other sessions are
    then those of others, whatever their agent's name. `own`: hashes of further sessions whose claims are the caller's
    own. `hosted`: hooks of the caller's host are known, which makes the caller known. `user`: the name under which
    claims from a shell are made. `strict`: also a caller that is not known, and a holder whose session has ended,
    block."""

    agent: str | None
    session: str | None
    own: frozenset[str]
    hosted: bool
    user: str
    strict: bool = False

    @property
    def is_known(self) -> bool:
        return self.agent is not None or self.session is not None or self.hosted

    def owns(self, lease: Lease) -> bool:
        if lease.session is not None and (lease.session == self.session or lease.session in self.own):
            return True
        return self.session is None and self.agent is not None and acts_for(self.agent, lease.agent)

    def leads(self, lease: Lease) -> bool:
        """Whether the holder is a sub-agent of the caller."""
        return self.agent is not None and lease.agent.startswith(f"{self.agent}/")


class CheckedFile(Part):
    """A file that another session holds. `path`: as it was given; the other fields are those of `status`. `blocks`:
    whether the file must not be changed; if not, `why_not` is the reason. `workspace`: the other workspace in which the
    same path is held."""

    path: str
    blocks: bool
    why_not: WhyNot | None = None
    workspace: str | None = None
    resource: str
    held_by: str
    held_by_principal: str | None = None
    claimed_at: Time
    held_for_seconds: float
    expires_in_seconds: float
    holder_connected: bool
    covered_by: str | None = None
    mixed_scripts: bool | None = None


class HumanFile(Part):
    """A file that only a person may change. `blocks`: the caller must not change it. `caller`: `unknown` may be a
    person. `rule`: where `holdlog.toml` says so."""

    path: str
    blocks: bool
    caller: Literal["agent", "unknown"]
    rule: str


class Checked(Result):
    """`status`: `held` if a file of `files` blocks; `human` if one of `human` does; `not_checked` if there is no store
    to read. `checked`: how many files. `positions`: of the caller's own claims on them. `unchecked`: paths that are in
    no workspace. `warnings`: why nothing was checked, and what is wrong with `holdlog.toml`."""

    status: Literal["ok", "held", "human", "not_checked"]
    checked: int
    files: list[CheckedFile]
    human: list[HumanFile] | None = None
    positions: list[int]
    unchecked: list[str] | None = None
    warnings: list[str] | None = None


class _File(NamedTuple):
    """A path, and the resource that it is."""

    path: str
    resource: str


def check(rules: RequestRules, paths: Sequence[tuple[str, str]], who: Committer) -> Query[Checked]:
    """Check files, each given as the path to show and the path to look up."""
    found = {path: _file(rules, path, given) for path, given in paths}
    files = [it for it in found.values() if it is not None]
    unchecked = [path for path, it in found.items() if it is None]
    workspaces = rules.settings.workspaces
    elsewhere = {it: workspaces.elsewhere(it.resource) if workspaces is not None else [] for it in files}
    names = {it.resource for it in files} | {name for others in elsewhere.values() for _, name in others}

    def answer(reader: Reader) -> Checked:
        board = load_board(reader, sorted(names), rules.steady(), rules.clock())
        own: set[int] = set()
        held = []
        for file in files:
            others = []
            for hold in presenter.blocking_holds(file.resource, board):
                if who.owns(hold.lease):
                    own.add(hold.lease.position)
                else:
                    others.append(_checked(rules, board, file.path, file.resource, hold, who))
            for workspace, resource in elsewhere[file]:
                for hold in presenter.blocking_holds(resource, board):
                    if not who.owns(hold.lease):
                        shown = _checked(rules, board, file.path, resource, hold, who)
                        facts = {"blocks": False, "why_not": "other_workspace", "workspace": workspace}
                        others.append(shown.model_copy(update=facts))
            held += sorted(others, key=lambda it: not it.blocks)[:1]
        status: Literal["ok", "held"] = "held" if any(it.blocks for it in held) else "ok"
        positions = sorted(own - {0})
        result = Checked(
            status=status, checked=len(found), files=held, positions=positions, unchecked=unchecked or None
        )
        return rules.shown(result)

    return Query(answer, large=True)


def _file(rules: RequestRules, path: str, given: str) -> _File | None:
    """The resource of a path; None if the path is in no workspace."""
    try:
        resource = rules.find(given)
    except InvalidError:
        return None
    return None if resource is None else _File(path, resource)


def _checked(
    rules: RequestRules, board: ClaimBoard, path: str, resource: str, hold: LiveHold, who: Committer
) -> CheckedFile:
    held = presenter.held_response(resource, hold, board, rules.moment())
    # Without a session nothing shows that a holder has ended; who chose a lease wants the claim to outlive the session.
    is_live = held.holder_connected or hold.lease.session is None or hold.lease.explicit
    why_not: WhyNot | None = None
    if not who.strict:
        if not who.is_known:
            why_not = "unknown_caller"
        elif who.leads(hold.lease):
            why_not = "sub_agent"
        elif who.agent is None and who.session is None and hold.lease.agent == who.user:
            why_not = "user_name"
        elif not is_live:
            why_not = "session_ended"
    facts = {name: getattr(held, name) for name in CheckedFile.model_fields if name in Held.model_fields}
    return CheckedFile(path=path, blocks=why_not is None, why_not=why_not, **facts)
