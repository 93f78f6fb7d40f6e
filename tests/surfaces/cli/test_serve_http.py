"""What `holdlog serve --transport http` refuses before it starts, without starting one."""

from pathlib import Path

import pytest

from holdlog.adapters.cli.main import main, parsed

OPEN = ("serve", "--transport", "http", "--port", "0")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not refused starts nothing."""

    def serve(*_: object) -> None:
        raise AssertionError("a server was started")

    monkeypatch.setattr("holdlog.adapters.http.running.server_of", serve)


def refused(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> str:
    """The one line with which a server refuses to start."""
    try:
        code: object = main([*OPEN, "--db", str(path), *options])
    except SystemExit as end:
        code = end.code
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2, line
    return line


@pytest.mark.parametrize("word", ["1", "true", "YES", "on", " on "])
def test_environment_switch_is_on_for_every_accepted_word(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDLOG_AUTH", word)
    assert parsed(OPEN).auth is True


@pytest.mark.parametrize("word", ["0", "false", "No", "off", ""])
def test_environment_switch_is_off_for_every_accepted_word(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDLOG_AUTH", word)
    assert parsed(OPEN).auth is False
    assert parsed([*OPEN, "--auth"]).auth is True


@pytest.mark.parametrize("name", ["AUTH", "INSECURE", "OPEN_TOKENS"])
def test_switch_with_an_unknown_word_starts_no_server(
    name: str, path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"HOLDLOG_{name}", "required")
    assert f"HOLDLOG_{name}" in refused(capsys, path)


@pytest.mark.parametrize("option", ["--allowed-origin", "--allowed-host"])
def test_server_without_tokens_refuses_to_allow_every_origin(
    option: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "every web page" in refused(capsys, path, option, "*")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--path", "/claims"), "path"),
        (("--path", "/a/../b"), "path"),
        (("--path", "/."), "path"),
        (("--trusted-proxy", "proxy.example"), "trusted-proxy"),
    ],
)
def test_invalid_http_setting_is_reported_in_one_line(
    options: tuple[str, ...], told: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in refused(capsys, path, *options)


def test_the_algorithm_of_jwt_can_be_chosen(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jwt = ("--jwt-issuer", "https://x", "--jwt-audience", "us", "--jwt-jwks-url", "https://x/keys")
    assert "--jwt-algorithm: must be one of" in refused(capsys, path, *jwt, "--jwt-algorithm", "HS256")
