"""View `tokens`: the current state of every token, never its secret. Revoked tokens keep their rows: their versions
continue."""

import json
from typing import Any

from holdlog.domain.token import Token
from holdlog.projections.projection import Put, Table

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


def put_token(token: Token) -> Put:
    return Put(TOKENS, tuple(token._replace(allow=json.dumps(token.allow, ensure_ascii=False))))  # type: ignore[arg-type]


def token_of(row: tuple[Any, ...]) -> Token:
    token = Token(*row)
    return token._replace(allow=tuple(json.loads(token.allow)))  # type: ignore[arg-type]
