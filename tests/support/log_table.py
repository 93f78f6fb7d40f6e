"""The table of the log, read without the recorder."""

from typing import Final

from holdlog.adapters.stores.event_log.codec import COLUMNS
from holdlog.adapters.stores.sql.tables import EVENTS_TABLE

SELECT_EVENTS: Final = f"SELECT notification_id, {', '.join(COLUMNS)} FROM {EVENTS_TABLE}"
"""For PostgreSQL, and for statements that `for_sqlite` translates."""
