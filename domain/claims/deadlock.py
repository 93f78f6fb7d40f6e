"""Deadlocks: agents that wait for each other, so that none of them would ever get what it wants."""

from holdlog.domain.claims.board import ClaimBoard, LiveHold, WantedClaim
from holdlog.domain.claims.lease import Who
from holdlog.domain.refusals import Link


def cycle(wanted: WantedClaim, board: ClaimBoard) -> list[Link]:
    """The cycle of agents that would wait for each other if this claim waited; empty if there is none."""
    waits = _Waits(board, wanted)
    return waits.first_cycle(waits.of(wanted.who))  # or another call of the same agent


def closed_cycle(board: ClaimBoard) -> list[Link]:
    """The cycle of agents that already wait for each other; empty if there is none. A grant to an agent that also
    waits can close one."""
    waits = _Waits(board)
    return waits.first_cycle([wanted for who in waits.agents() for wanted in waits.of(who)])


class _Waits:
    """What the agents in a call want, with `also_wanted`, and who holds it."""

    def __init__(self, board: ClaimBoard, also_wanted: WantedClaim | None = None) -> None:
        self._board = board
        self._present = board.present()
        self._also_wanted = also_wanted
        self._known: dict[Who, list[WantedClaim]] = {}

    def agents(self) -> list[Who]:
        return list(dict.fromkeys(waiting.lease.who for waiting in self._present))

    def of(self, who: Who) -> list[WantedClaim]:
        """What one agent wants."""
        found = self._known.get(who)
        if found is None:
            also = self._also_wanted
            found = [also] if also is not None and also.who == who else []
            found += [it.wanted for it in self._present if it.lease.agent == who.agent and it.lease.who == who]
            self._known[who] = found
        return found

    def first_cycle(self, starts: list[WantedClaim]) -> list[Link]:
        stuck = self._stuck(starts)
        return next((self._cycle_of(it, stuck) for it in starts if self._is_stuck(it, stuck)), [])

    def _stuck(self, starts: list[WantedClaim]) -> set[Who]:
        """The deadlocked ones among these waiters and those that they wait for: each waits for a holder among them. A
        claim with several options is stuck if all of them are.

        The order of the queue does not matter: a waiter is overtaken by the agent that it waits for.
        """
        holders: dict[WantedClaim, list[set[Who]]] = {}
        rest = list(starts)
        while rest:
            wanted = rest.pop()
            if wanted not in holders:
                holders[wanted] = [self._board.holders(wanted, option) for option in wanted.options]
                rest += [found for option in holders[wanted] for who in option for found in self.of(who)]
        stuck = {wanted.who for wanted in holders}
        while True:
            still = {wanted.who for wanted, options in holders.items() if all(option & stuck for option in options)}
            if still == stuck:
                return stuck
            stuck = still

    def _cycle_of(self, wanted: WantedClaim, stuck: set[Who]) -> list[Link]:
        path: list[tuple[Who, str]] = []  # an agent, and what it waits for
        while wanted.who not in (who for who, _ in path):
            hold = self._stuck_hold(wanted, stuck)
            path.append((wanted.who, hold.resource))
            wanted = next(it for it in self.of(hold.lease.who) if self._is_stuck(it, stuck))
        cycle = path[[who for who, _ in path].index(wanted.who) :]
        return [
            Link(who.agent, cycle[number - 1][1], waited, who.principal) for number, (who, waited) in enumerate(cycle)
        ]

    def _is_stuck(self, wanted: WantedClaim, stuck: set[Who]) -> bool:
        return all(self._board.holders(wanted, option) & stuck for option in wanted.options)

    def _stuck_hold(self, wanted: WantedClaim, stuck: set[Who]) -> LiveHold:
        option = wanted.options[0]
        holds = (
            hold
            for resource in option
            for hold in self._board.conflicting_holds(resource, wanted.mode, wanted.who, option)
        )
        return next(hold for hold in holds if hold.lease.who in stuck)
