"""`claimed` of the library for coroutines: a block that holds a claim, renews it, and at its end releases exactly that
claim."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from holdlog.adapters.api.request import CommandRequest
from holdlog.adapters.python.block import Block, HeldClaim, HoldOptions, to_its_end_async
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.claims.commands import ReleaseClaim
from holdlog.domain.refusals import HoldlogError


@asynccontextmanager
async def held_async(engine: Engine, options: HoldOptions) -> AsyncIterator[HeldClaim]:
    """Hold a claim while the block runs. Raises BusyError, DeadlockError; at the end, FencedError if the claim was lost
    and the block did not raise. The claim of an interrupted block is still released."""
    block = await engine.run_off_loop_async(partial(Block, engine, options))

    async def release_all(releases: Sequence[ReleaseClaim], judge: bool) -> None:
        for command in releases:
            try:
                block.released(
                    command, await engine.write_async(CommandRequest(command, lambda outcome: outcome), engine.caller)
                )
            except HoldlogError as refusal:
                block.refused(refusal, judge)

    try:
        claim = None
        while claim is None:
            claim = block.acquired(await engine.claim_async(block.request(), engine.caller))
    except HoldlogError:
        await to_its_end_async(partial(release_all, await engine.run_off_loop_async(block.leave_queue), judge=False))
        raise
    except BaseException:  # interrupted: it is unknown what was granted
        await to_its_end_async(partial(release_all, block.undoing(), judge=False))
        raise
    try:
        yield claim
    except BaseException:
        await to_its_end_async(partial(release_all, block.release(), judge=False))
        raise
    await to_its_end_async(partial(release_all, block.release(), judge=True))
    await engine.run_off_loop_async(block.require_kept)
