"""View `store_log`: one row with the facts about the log that apply now."""

import json

from holdlog.domain.store_log import Retention, StoreLog
from holdlog.projections.projection import Row, Table

STORE_LOG = Table("store_log", {"name": str, "version": int, "retention": str, "digest": bytes}, key=1)
_NAME = "log"


def row_of_store_log(state: StoreLog, digest: bytes) -> Row:
    retention = {it.namespace: it.seconds for it in state.retention}
    return _NAME, state.version, json.dumps(retention, ensure_ascii=False), digest


def store_log_of(row: Row) -> StoreLog:
    found = json.loads(row[2])
    return StoreLog(row[1], tuple(Retention(namespace=name, seconds=it) for name, it in found.items()))
