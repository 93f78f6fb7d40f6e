"""AgentKit's four hooks of a network's history, over a store."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from holdlog.adapters.arguments import checked
from holdlog.adapters.call import Read, Write
from holdlog.adapters.threads.cloning import in_parts
from holdlog.adapters.threads.conversation import USER, AgentResult, UserMessage
from holdlog.adapters.threads.data import kind_of
from holdlog.adapters.threads.place import AnyStore, Place, new_name, require_agent, result_item, thread_changed
from holdlog.adapters.threads.said import results_of, said
from holdlog.domain.ports import Reader
from holdlog.domain.refusals import NotFoundError
from holdlog.domain.threads.past import items_at
from holdlog.domain.threads.thread import Append, NewResult, StartThread, ThreadChanged, ThreadCommand

Answer = TypeVar("Answer")
...
