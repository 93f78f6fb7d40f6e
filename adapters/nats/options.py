"""The options of NATS: its servers, credentials, and the name of a store's stream."""

import importlib.util
import re
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from holdlog.adapters.nats.errors import NatsError
from holdlog.adapters.operating_system.extras import missing
from holdlog.adapters.operating_system.options import ANY_SECONDS, FILE, ONE_OR_MORE, option, secrets_of, text

if TYPE_CHECKING:
    import ssl

PREFIX: Final = "holdlog"
SCHEMES: Final = ("nats", "tls")
DEFAULT_PORT: Final = 4222

_WORDS: Final = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,7}")
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class StreamLimits:
    """Limits of the stream; None: as they are, or none for a new stream."""

    max_age: float | None = option(
        "drop events older than this from the stream", ANY_SECONDS, name="nats_max_age", unset="no limit"
    )
    max_bytes: int | None = option(
        "drop the oldest events if the stream exceeds N bytes", ONE_OR_MORE, name="nats_max_bytes", unset="no limit"
    )
    max_messages: int | None = option(
        "drop the oldest events if the stream exceeds N events", ONE_OR_MORE, name="nats_max_messages", unset="no limit"
    )
    replicas: int | None = option(
        "copies of the stream in a NATS cluster", ONE_OR_MORE, name="nats_replicas", unset="1"
    )


@dataclass(frozen=True)
class NatsOptions:
    """Options of a NATS connection and of the store's stream. `servers`: URLs without user or password. `name`: the
    store's token in subjects, None = its id."""

    servers: tuple[str, ...] = option(
        "nats://host:4222 or tls://host:4222, several separated by commas", text("URL"), name="nats", default=MISSING
    )
    user: str | None = option("the user", text("TEXT"), name="nats_user", has_flag=False, is_secret=True)
    password: str | None = option(
        "the user's password", text("TEXT"), name="nats_password", has_flag=False, is_secret=True
    )
    token: str | None = option(
        "the token, instead of a user", text("TEXT"), name="nats_token", has_flag=False, is_secret=True
    )
    name: str | None = option("the name of the store in subjects", text("NAME"), name="nats_name", unset="its id")
    prefix: str = option("the first part of all subjects", text("TEXT"), name="nats_prefix", default=PREFIX)
    credentials: Path | None = option("a file with credentials: JWT and NKEY", FILE, name="nats_creds")
    nkey: Path | None = option("a file with the seed of an NKEY", FILE, name="nats_nkey")
    ca: Path | None = option("a file with certificates to trust", FILE, name="nats_ca", unset="those of the system")
    certificate: Path | None = option("a file with the client certificate", FILE, name="nats_cert")
    key: Path | None = option("a file with the key of the client certificate", FILE, name="nats_key")
    limits: StreamLimits = StreamLimits()

    def __repr__(self) -> str:
        """A representation without secrets: it may be logged."""
        return f"NatsOptions({self.address})"

    @property
    def address(self) -> str:
        """The servers, for people."""
        return ",".join(self.servers)

    @property
    def target(self) -> int:
        """A number that relays of one store share if they publish to the same servers and subjects (32 bits)."""
        return zlib.crc32(f"{','.join(sorted(self.servers))} {self.root('')}".encode())

    def root(self, store_id: str) -> str:
        """The common prefix of all subjects of a store."""
        return f"{self.prefix}.{self.name or store_id}"

    def stream(self, store_id: str) -> str:
        """The name of a store's stream."""
        return self.root(store_id).replace(".", "_")

    def arguments(self) -> dict[str, Any]:
        """The arguments of `nats.connect`. Raises NatsError for unusable files."""
        given: dict[str, Any] = {"user": self.user, "password": self.password, "token": self.token}
        if self.credentials is not None:
            given["user_credentials"] = str(_readable(self.credentials, "the credentials file"))
        if self.nkey is not None:
            given["nkeys_seed"] = str(_readable(self.nkey, "the NKEY file"))
        if self.credentials is not None or self.nkey is not None:
            _require_nkeys()
        if self._is_encrypted():
            given["tls"] = self._context()
        return {name: value for name, value in given.items() if value is not None}

    def _is_encrypted(self) -> bool:
        return bool(self.ca or self.certificate) or any(it.startswith("tls://") for it in self.servers)

    def _context(self) -> "ssl.SSLContext":
        import ssl  # slow, and needed for encrypted connections only

        for path in filter(None, (self.ca, self.certificate, self.key)):
            _readable(path, "the TLS file")
        try:
            context = ssl.create_default_context(cafile=self.ca.expanduser() if self.ca else None)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate.expanduser(), self.key.expanduser() if self.key else None)
        except (OSError, ssl.SSLError) as error:
            raise NatsError(f"the TLS files for NATS cannot be used: {error}") from None
        return context


def nats_options(url: str, environment: Mapping[str, str] | None = None, **more: Any) -> NatsOptions:
    """Options from one URL or several with commas: `nats://host:4222`, `tls://…`, with `user:password@` or `token@`.

    `environment` may contain HOLDLOG_NATS_USER, HOLDLOG_NATS_PASSWORD and HOLDLOG_NATS_TOKEN; with the suffix _FILE,
    each names a file that contains the value. Raises NatsError, InvalidError.
    """
    found = environment or {}
    servers: list[str] = []
    user, password, token = secrets_of(NatsOptions, found).values()
    for each in filter(None, (part.strip() for part in url.split(","))):
        server, name, word = _server(each)
        servers.append(server)
        if name is not None and word is not None:
            user, password = name, word
        elif name is not None:
            token = name
    if not servers:
        raise NatsError("--nats needs a URL such as nats://127.0.0.1:4222")
    options = NatsOptions(tuple(servers), user, password, token, **more)
    if not _WORDS.fullmatch(options.prefix):
        raise NatsError("the prefix of subjects must have letters, digits, _ and -, with dots between them")
    if options.name is not None and not _WORD.fullmatch(options.name):
        raise NatsError("the name of a store in subjects must have 1 to 64 letters, digits, _ and -")
    if options.password is not None and options.user is None:
        raise NatsError("a password for NATS requires a user")
    return options


def _server(url: str) -> tuple[str, str | None, str | None]:
    """The URL without its user part, and that part. The error message never contains it: it may be a password."""
    if "://" not in url:
        url = f"nats://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise NatsError("the URL of NATS cannot be read; it looks like nats://127.0.0.1:4222") from None
    if parts.scheme not in SCHEMES:
        raise NatsError(f"the URL of NATS must start with nats:// or tls://, not {parts.scheme[:20]}://")
    if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise NatsError("the URL of NATS must have only a host and a port, such as nats://127.0.0.1:4222")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password is not None else None
    return f"{parts.scheme}://{host}:{port}", user, password


def _readable(path: Path, what: str) -> Path:
    try:
        with path.expanduser().open("rb"):
            return path.expanduser()
    except OSError as error:
        raise NatsError(f"{what} {path} cannot be read: {error.strerror}") from None
    except RuntimeError:  # ~ of an unknown user
        raise NatsError(f"{what} {path} cannot be read: the home folder of that user is unknown") from None


def _require_nkeys() -> None:
    if importlib.util.find_spec("nkeys") is None:
        raise NatsError(f"NKEY and credentials files: {missing('nkeys')}")
