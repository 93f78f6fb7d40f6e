"""The library for coroutines. Written by `make generate` from the operations; do not edit."""

from holdlog.adapters.python.base import AwaitableHandle, make_awaitable
from holdlog.adapters.python.store import StateStore


class AsyncStateStore(AwaitableHandle):
    """As StateStore, for coroutines of any event loops: its methods are awaitable."""

    at = make_awaitable(StateStore.at)
    backup = make_awaitable(StateStore.backup)
    blame = make_awaitable(StateStore.blame)
    checkpoint = make_awaitable(StateStore.checkpoint)
    claim = make_awaitable(StateStore.claim)
    clear_namespace = make_awaitable(StateStore.clear_namespace)
    delete = make_awaitable(StateStore.delete)
    diff = make_awaitable(StateStore.diff)
    doctor = make_awaitable(StateStore.doctor)
    events = make_awaitable(StateStore.events)
    export = make_awaitable(StateStore.export)
    export_namespace = make_awaitable(StateStore.export_namespace)
    get = make_awaitable(StateStore.get)
    history = make_awaitable(StateStore.history)
    import_ = make_awaitable(StateStore.import_)
    list = make_awaitable(StateStore.list)
    log = make_awaitable(StateStore.log)
    rebuild = make_awaitable(StateStore.rebuild)
    redact = make_awaitable(StateStore.redact)
    release = make_awaitable(StateStore.release)
    replay = make_awaitable(StateStore.replay)
    resource_history = make_awaitable(StateStore.resource_history)
    revert = make_awaitable(StateStore.revert)
    set = make_awaitable(StateStore.set)
    status = make_awaitable(StateStore.status)
    thread_append = make_awaitable(StateStore.thread_append)
    thread_read = make_awaitable(StateStore.thread_read)
    token_create = make_awaitable(StateStore.token_create)
    token_list = make_awaitable(StateStore.token_list)
    token_revoke = make_awaitable(StateStore.token_revoke)
    transact = make_awaitable(StateStore.transact)
    update = make_awaitable(StateStore.update)
    verify = make_awaitable(StateStore.verify)
    wait = make_awaitable(StateStore.wait)
    watch = make_awaitable(StateStore.watch)
