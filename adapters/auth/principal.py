"""The authenticated principal."""

from typing import NamedTuple

from holdlog.adapters.auth.grants import Grants


class Principal(NamedTuple):
    """An authenticated caller. `name`: recorded in the envelope of every event, such as `token:ci`, `static`,
    `jwt:ann`. `space`: the only space it may use; None: the main store. `expires_at`: microseconds UTC."""

    name: str
    grants: Grants
    space: str | None = None
    expires_at: int | None = None
