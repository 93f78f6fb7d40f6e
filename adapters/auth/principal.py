"""Who was authenticated."""

from typing import NamedTuple

from holdlog.adapters.auth.grants import Grants


class Principal(NamedTuple):
    """`name` stands in the envelope of every event: `token:ci`, `static`, `jwt:ann`. `space`: the only one it may use;
    None: the main store. `expires_at`: microseconds UTC."""

    name: str
    grants: Grants
    space: str | None = None
    expires_at: int | None = None
