"""View `tokens`: the current state of every token, never its secret. Revoked tokens keep their rows: their versions
continue."""

import json

from holdlog.domain.token import Token
from holdlog.projections.projection import Row, Table

TOKENS = Table(
    "tokens",
    {
        "name": str,
        "version": int,
        "hash": str,
        "previous_hash": str,
        "previous_until": int,
        "allow": str,
        "expires_at": int,
        "space": str,
        "issued_by": str,
        "issued_at": int,
        "rotated_at": int,
        "revoked_at": int,
        "digest": bytes,
    },
    key=1,
)


def row_of_token(token: Token, digest: bytes) -> Row:
    allow = json.dumps(token.allow, ensure_ascii=False)
    return (*token._replace(allow=allow), digest)  # type: ignore[arg-type]


def token_of(row: Row) -> Token:
    token = Token(*row[:-1])
    return token._replace(allow=tuple(json.loads(token.allow)))  # type: ignore[arg-type]
