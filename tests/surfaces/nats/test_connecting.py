"""URLs, users, keys and certificates: what is right gets in, what is wrong is told in one line without a secret."""

import asyncio
import base64
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import nkeys
import pytest

from holdlog.adapters.compose import open_holdlog
from holdlog.adapters.nats.errors import NatsError
from holdlog.adapters.nats.options import NatsOptions, nats_options
from holdlog.adapters.runtime.engine import Engine
from holdlog.domain.message import NOBODY
from tests.support.commands import put, transact
from tests.support.servers import free_port, nats_server
from tests.surfaces.nats.conftest import publish_all

SECRET = "s3cr%2Ft"


@pytest.mark.parametrize(
    "url",
    [
        "",
        " , ",
        f"http://ann:{SECRET}@host",
        f"nats://ann:{SECRET}@host:notaport",
        f"nats://ann:{SECRET}@host:99999",
        f"nats://ann:{SECRET}@",
        f"nats://ann:{SECRET}@host/path",
        f"nats://ann:{SECRET}@host?x=1",
        f"nats://ann:{SECRET}@[::1",
    ],
)
def test_invalid_nats_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(NatsError, match=r"NATS|--nats") as refused:
        nats_options(url)
    assert "s3cr" not in str(refused.value)


def test_user_and_password_are_removed_from_the_nats_url() -> None:
    options = nats_options(f"nats://ann:{SECRET}@one,tls://two:4333, nats://[::1]:1")
    assert options.servers == ("nats://one:4222", "tls://two:4333", "nats://[::1]:1")
    assert (options.user, options.password, options.token) == ("ann", "s3cr/t", None)
    assert "s3cr" not in f"{options!r} {options.address} {options}"
    assert nats_options("nats://abc@one").token == "abc"


def test_nats_secrets_may_come_from_the_environment() -> None:
    found = nats_options("nats://one", {"HOLDLOG_NATS_USER": "ann", "HOLDLOG_NATS_PASSWORD": "p"})
    assert (found.user, found.password) == ("ann", "p")
    assert nats_options("nats://one", {"HOLDLOG_NATS_TOKEN": "t"}).token == "t"
    with pytest.raises(NatsError, match="requires a user"):
        nats_options("nats://one", {"HOLDLOG_NATS_PASSWORD": "p"})


@pytest.mark.parametrize("more", [{"name": "a.b"}, {"name": "*"}, {"name": ""}, {"prefix": "a b"}, {"prefix": "a..b"}])
def test_nats_prefix_and_name_with_special_characters_are_refused(more: dict[str, str]) -> None:
    with pytest.raises(NatsError, match=r"must have (1 to 64 )?letters"):
        nats_options("nats://one", **more)


def test_nats_stream_is_named_after_prefix_and_store() -> None:
    options = nats_options("nats://one", prefix="acme.holdlog", name="team")
    assert (options.root("id"), options.stream("id")) == ("acme.holdlog.team", "acme_holdlog_team")
    assert nats_options("nats://one").root("id") == "holdlog.id"


@pytest.mark.parametrize("field", ["credentials", "nkey", "ca"])
def test_missing_credentials_file_is_named(field: str, tmp_path: Path) -> None:
    with pytest.raises(NatsError, match="nothing-here"):
        nats_options("tls://one", **{field: tmp_path / "nothing-here"}).arguments()
    with pytest.raises(NatsError, match="~nobody-at-all/x cannot be read: the home folder of that user is unknown"):
        nats_options("tls://one", **{field: Path("~nobody-at-all/x")}).arguments()


def test_missing_nkeys_package_is_reported_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nkeys", None)
    (tmp_path / "seed").write_text("SU")
    with pytest.raises(NatsError, match=r"NATS needs nkeys, which is not installed; run: .*\[nats\]"):
        nats_options("nats://one", nkey=tmp_path / "seed").arguments()


async def reaches(engine: Engine, path: Path, options: NatsOptions) -> bool:
    """Whether events get there."""
    engine.writer.run(transact(put("k", 1)), NOBODY)
    await publish_all(engine, path, options)
    return True


@pytest.mark.parametrize(
    ("config", "right", "wrong"),
    [
        ('authorization: {user: ann, password: "s3cr/t"}', f"ann:{SECRET}@", ("", "ann:x@", "bob:s3cr%2Ft@", "tok@")),
        ('authorization: {token: "s3cr/t"}', f"{SECRET}@", ("", "x@")),
    ],
)
async def test_known_nats_user_is_accepted_and_no_other(
    engine: Engine, path: Path, tmp_path: Path, config: str, right: str, wrong: tuple[str, ...]
) -> None:
    (tmp_path / "c.conf").write_text(config)
    with nats_server(tmp_path / "nats", "-c", str(tmp_path / "c.conf")) as server:
        for who in wrong:
            with pytest.raises(NatsError, match="refuses the credentials") as refused:
                await reaches(engine, path, nats_options(server.url.replace("//", f"//{who}")))
            assert "s3cr" not in str(refused.value)
        assert await reaches(engine, path, nats_options(server.url.replace("//", f"//{right}")))


async def test_slow_nats_server_is_asked_again(engine: Engine, path: Path, tmp_path: Path) -> None:
    config = tmp_path / "hasty.conf"
    config.write_text("authorization { token: abc, timeout: 0.2 }")
    late: list[bool] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Bring what the server says; what the first client says comes when the server has given up."""
        answers, words = await asyncio.open_connection("127.0.0.1", server.port)
        is_first, late[:] = not late, [True]

        async def bring(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while some := await source.read(65_536):
                    to.write(some)
            to.close()

        back = asyncio.create_task(bring(answers, writer))
        if is_first:
            await back
        await bring(reader, words)
        await back

    with nats_server(tmp_path / "nats", "-c", str(config)) as server:
        async with await asyncio.start_server(hold, "127.0.0.1", 0) as slow:
            await publish_all(engine, path, nats_options(f"abc@127.0.0.1:{slow.sockets[0].getsockname()[1]}"))
    assert late


async def test_nkey_is_accepted(engine: Engine, path: Path, tmp_path: Path) -> None:
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    other = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    (tmp_path / "seed").write_bytes(seed)
    (tmp_path / "other").write_bytes(other)
    (tmp_path / "broken").write_bytes(b"SUbroken")
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    (tmp_path / "c.conf").write_text(f"authorization: {{users: [{{nkey: {public}}}]}}")
    with nats_server(tmp_path / "nats", "-c", str(tmp_path / "c.conf")) as server:
        with pytest.raises(NatsError, match="refuses"):
            await reaches(engine, path, nats_options(server.url, nkey=tmp_path / "other"))
        with pytest.raises(NatsError, match="cannot be used"):
            await reaches(engine, path, nats_options(server.url, nkey=tmp_path / "broken"))
        with pytest.raises(NatsError, match="cannot be used"):
            await reaches(engine, path, nats_options(server.url, credentials=tmp_path / "broken"))
        assert await reaches(engine, path, nats_options(server.url, nkey=tmp_path / "seed"))


def signed(claims: dict[str, object], signer: bytes) -> str:
    """A JWT as NATS has it (https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/jwt)."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    pair = nkeys.from_seed(bytearray(signer))
    whole = {"jti": secrets.token_hex(8), "iat": int(time.time()), "iss": pair.public_key.decode(), **claims}
    head = part(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
    body = f"{head}.{part(json.dumps(whole).encode())}"
    return f"{body}.{part(pair.sign(body.encode()))}"


async def test_credentials_file_is_accepted(engine: Engine, path: Path, tmp_path: Path) -> None:
    kinds = (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER, nkeys.PREFIX_BYTE_ACCOUNT)
    operator, account, user, system = (nkeys.encode_seed(os.urandom(32), kind) for kind in kinds)
    names = [nkeys.from_seed(bytearray(seed)).public_key.decode() for seed in (operator, account, user, system)]
    limits = {"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1, "payload": -1,
              "wildcards": True, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}  # fmt: skip
    tokens = [
        signed({"sub": names[0], "name": "O", "nats": {"type": "operator", "version": 2}}, operator),
        signed({"sub": names[1], "name": "A", "nats": {"limits": limits, "type": "account", "version": 2}}, operator),
        signed({"sub": names[2], "name": "U", "nats": {"type": "user", "version": 2, "subs": -1, "data": -1,
                "payload": -1, "pub": {}, "sub": {}}}, account),
        signed({"sub": names[3], "name": "S", "nats": {"type": "account", "version": 2}}, operator),
    ]  # fmt: skip
    (tmp_path / "c.conf").write_text(
        f"operator: {tokens[0]}\nresolver: MEMORY\nsystem_account: {names[3]}\n"
        f"resolver_preload: {{ {names[1]}: {tokens[1]}, {names[3]}: {tokens[3]} }}"
    )
    (tmp_path / "user.creds").write_text(
        f"-----BEGIN NATS USER JWT-----\n{tokens[2]}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.decode()}\n------END USER NKEY SEED------\n"
    )
    with nats_server(tmp_path / "nats", "-c", str(tmp_path / "c.conf")) as server:
        with pytest.raises(NatsError, match="refuses the credentials"):
            await reaches(engine, path, nats_options(server.url))
        assert await reaches(engine, path, nats_options(server.url, credentials=tmp_path / "user.creds"))


def make_certificates(folder: Path) -> None:
    """`server` and `client`, each signed by itself."""
    make = ["openssl", "req", "-x509", "-nodes", "-days", "2"]
    make += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    for name in ("server", "client"):
        who = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        files = ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"]
        subprocess.run([*make, *who, *files], check=True, capture_output=True)


async def test_tls_certificates_of_nats_are_verified_in_both_directions(
    engine: Engine, path: Path, tmp_path: Path
) -> None:
    make_certificates(tmp_path)
    (tmp_path / "c.conf").write_text(
        f'tls: {{cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server.key",'
        f' ca_file: "{tmp_path}/client.pem", verify: true}}'
    )
    with nats_server(tmp_path / "nats", "-c", str(tmp_path / "c.conf")) as server:
        url = server.url.replace("nats://", "tls://")
        ca, ours = tmp_path / "server.pem", {"certificate": tmp_path / "client.pem", "key": tmp_path / "client.key"}
        assert await reaches(engine, path, nats_options(url, ca=ca, **ours))
        with pytest.raises(NatsError, match="cannot be used"):
            nats_options(url, ca=tmp_path / "server.key").arguments()
        with pytest.raises(NatsError, match="is not trusted"):
            await reaches(engine, path, nats_options(url, **ours))


# --- the command line


def holdlog(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdlog", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
        check=False,
    )


@pytest.mark.check
@pytest.mark.parametrize("command", ["relay", "subscribe", "serve"])
def test_bad_nats_url_ends_a_command_with_one_line(command: str, path: Path) -> None:
    open_holdlog(path).close()
    done = holdlog(command, "--db", path, "--nats", f"http://ann:{SECRET}@host")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "holdlog: the URL of NATS must start with nats:// or tls://, not http://\n"


@pytest.mark.check
@pytest.mark.parametrize("command", ["relay", "subscribe"])
def test_wrong_nats_credentials_end_a_command_with_one_line(command: str, path: Path, tmp_path: Path) -> None:
    open_holdlog(path).close()
    (tmp_path / "c.conf").write_text('authorization: {user: ann, password: "right"}')
    with nats_server(tmp_path / "nats", "-c", str(tmp_path / "c.conf")) as server:
        done = holdlog(
            command, "--db", path, "--nats", server.url, HOLDLOG_NATS_USER="ann", HOLDLOG_NATS_PASSWORD="s3cret"
        )
    assert done.returncode == 2
    assert done.stderr.endswith(f"holdlog: {server.url} refuses the credentials\n")
    assert "s3cret" not in done.stderr + done.stdout


@pytest.mark.check
def test_relay_needs_a_url_and_a_store(path: Path) -> None:
    for command in ("relay", "subscribe"):
        missing = holdlog(command, "--db", path, "--nats", "nats://127.0.0.1")
        assert (missing.returncode, "there is no store" in missing.stderr) == (1, True)
    open_holdlog(path).close()
    assert "--nats: is required" in holdlog("relay", "--db", path).stderr
    assert "--nats-max-bytes" in holdlog("relay", "--db", path, "--nats", "nats://h", "--nats-max-bytes", "0").stderr


@pytest.mark.check
def test_subscribe_prints_json_lines(path: Path, tmp_path: Path) -> None:
    engine = open_holdlog(path)
    for number in range(4):
        engine.writer.run(transact(put("k", number), put("é", "\x9b", namespace="other")), NOBODY)
    engine.close()
    with nats_server(tmp_path / "nats") as server:
        assert holdlog("relay", "--db", path, "--nats", server.url, "--once").returncode == 0
        done = holdlog(
            "subscribe",
            "--db",
            path,
            "--after",
            "1",
            "--subject",
            "record.n.*",
            "--limit",
            "2",
            HOLDLOG_NATS=server.url,
        )
        assert [json.loads(line)["position"] for line in done.stdout.splitlines()] == [3, 5]
        for wanted in ([1, 2], [3, 4]):
            again = holdlog(
                "subscribe", "--nats", server.url, "--after", "0", "--durable", "d", "--limit", "2", "--db", path
            )
            assert [json.loads(line)["position"] for line in again.stdout.splitlines()] == wanted
        assert "\x9b" not in again.stdout
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.check
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_subscribe_waits_for_a_server_that_is_down_until_it_is_ended(number: int, code: int, path: Path) -> None:
    open_holdlog(path).close()
    url = f"nats://127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "holdlog", "subscribe", "--db", path, "--nats", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "cannot be reached" in process.stderr.readline() or "refused" in process.stderr.readline()
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == code
