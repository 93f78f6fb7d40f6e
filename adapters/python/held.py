# Generated from adapters/python/async_held.py by `make generate`. Do not edit.
"""`claimed` of the library for threads: a block that holds a claim, renews it, and at its end releases exactly that
claim."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from holdlog.adapters.api.request import CommandRequest
from holdlog.adapters.python.block import Block, HeldClaim, HoldOptions, to_its_end
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.claims.commands import ReleaseClaim
from holdlog.domain.refusals import HoldlogError


@contextmanager
def held(engine: Engine, options: HoldOptions) -> Iterator[HeldClaim]:
    """Hold a claim while the block runs. Raises BusyError, DeadlockError; at the end, FencedError if the claim was lost
    and the block did not raise. The claim of an interrupted block is still released."""
    block = engine.run_off_loop(partial(Block, engine, options))

    def release_all(releases: Sequence[ReleaseClaim], judge: bool) -> None:
        for command in releases:
            try:
                block.released(command, engine.write(CommandRequest(command, lambda outcome: outcome), engine.caller))
            except HoldlogError as refusal:
                block.refused(refusal, judge)

    try:
        claim = None
        while claim is None:
            claim = block.acquired(engine.claim(block.request(), engine.caller))
    except HoldlogError:
        to_its_end(partial(release_all, engine.run_off_loop(block.leave_queue), judge=False))
        raise
    except BaseException:  # interrupted: it is unknown what was granted
        to_its_end(partial(release_all, block.undoing(), judge=False))
        raise
    try:
        yield claim
    except BaseException:
        to_its_end(partial(release_all, block.release(), judge=False))
        raise
    to_its_end(partial(release_all, block.release(), judge=True))
    engine.run_off_loop(block.require_kept)
