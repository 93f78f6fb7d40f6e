"""Warnings about values that look like credentials. No credential here is real, and none is written in one piece, so
that scanners of repositories do not report this file."""

import time
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdlog.adapters.api.values.credentials import KINDS, with_warnings
from holdlog.adapters.api.values.responses import SetResult
from holdlog.adapters.auth.tokens import fresh
from holdlog.domain.commands import Outcome, RecordsChanged
from holdlog.domain.value import Json

A: Final = "aB3" * 40
"""Letters and digits."""

EXAMPLES: Final = {
    "a private key": ["-----BEGIN " + "OPENSSH PRIVATE KEY-----\nb3Bl", "-----BEGIN " + "PGP PRIVATE KEY BLOCK-----"],
    "an AWS access key": ["AKIA" + "IOSFODNN7EXAMPLE", "ASIA" + "IOSFODNN7EXAMPLE"],
    "a GitHub token": ["ghp_" + A[:36], "ghs_" + A[:36], "github_pat_" + A[:22] + "_" + A[:59]],
    "a GitLab token": ["glpat-" + A[:20], "glrt-" + A[:20]],
    "a Slack token": [
        "xoxb-" + "123456789012-" + A[:24],
        "xoxe." + "xoxp-1-" + A[:60],
        "xapp-" + "1-A012345678-1234567890123-" + "0af" * 11,
    ],
    "a Slack webhook": ["https://hooks.slack.com" + "/services/T01234567/B01234567/" + A[:24]],
    "a Stripe key": ["sk_live_" + A[:24], "rk_live_" + A[:24], "whsec_" + A[:32]],
    "an Anthropic key": ["sk-ant-" + "api03-" + A[:93]],
    "an OpenAI key": ["sk-proj-" + A[:48], "sk-" + A[:20] + "T3Blbk" + "FJ" + A[:20]],
    "a Google API key": ["AIza" + A[:35]],
    "a Google client secret": ["GOCSPX-" + A[:28]],
    "a Hugging Face token": ["hf_" + A[:34]],
    "an npm token": ["npm_" + A[:36]],
    "a PyPI token": ["pypi-" + "AgEIcHlwaS5vcmc" + A[:60]],
    "a SendGrid key": ["SG." + A[:22] + "." + A[:43]],
    "a JSON web token": ["eyJ" + A[:33] + ".eyJ" + A[:80] + "." + A[:43]],
    "a holdlog token": [fresh("ci").text],
}
HARMLESS: Final[list[Any]] = [
    "the budget of May is 2000",
    "a task-ant-api03 is no key; ask-proj-" + A[:48],
    "commit 6f1ed002ab5595859014ebf0951522d9a3bd7a4e",
    {"ghp_": "ghp_short", "AKIA": ["AKIA", "AKIAnotakeyatall1234"], "cursor": "eyJhIjox"},
    "-----BEGIN CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
]


def warnings_of(*values: Any, numbered: bool = False) -> list[str] | None:
    def answer(outcome: Outcome) -> SetResult:
        return SetResult(namespace="n", key="k", version=1, previous_version=None, position=1)

    texts = [Json.of(value).text for value in values]
    return with_warnings(answer, texts, numbered)(RecordsChanged(results=(), position=1)).warnings


@pytest.mark.parametrize("kind", KINDS)
def test_warning_names_the_kind_of_a_credential_and_no_part_of_it(kind: str) -> None:
    for text in EXAMPLES[kind]:
        for value in (text, {"note": f"use\n{text}\nfor it"}, [1, [text]], {text: 1}):
            (warning,) = warnings_of(value) or ["missing"]
            assert warning.startswith(f"the value looks like {kind}: the history keeps it; ")
            assert not [part for part in (text[:8], text[-8:]) if part in warning]


def test_harmless_values_have_no_warning() -> None:
    assert [value for value in HARMLESS if warnings_of(value)] == []


def test_warnings_of_a_transaction_name_the_first_operation_with_each_kind() -> None:
    token, key = EXAMPLES["a GitHub token"][0], EXAMPLES["a Google API key"][0]
    warnings = warnings_of(1, token, [key, token], numbered=True) or []
    assert [warning.split(":")[0] for warning in warnings] == [
        "the value of operation 1 looks like a GitHub token",
        "the value of operation 2 looks like a Google API key",
    ]


@given(value=st.recursive(st.text() | st.integers(), lambda part: st.lists(part) | st.dictionaries(st.text(), part)))
def test_no_warning_contains_a_part_of_any_value(value: Any) -> None:
    fixed = {f"the value looks like {kind}" for kind in KINDS}
    assert {warning.split(":")[0] for warning in warnings_of(value) or ()} <= fixed


@pytest.mark.parametrize(
    "unit", ["eyJ", "eyJaaaaaaaaaaa.", "\\neyJ", "sk-", "ghp_" + "a" * 35 + " ", "AKIAA0", "-----BEGIN ", "xoxa-1", "é"]
)
def test_time_is_linear_whatever_the_value(unit: str) -> None:
    text = Json.of((unit * 262_144)[:262_000]).text
    started = time.process_time()
    assert warnings_of(text) is None
    assert time.process_time() - started < 0.5  # measured: 0.4 ms; quadratic time would be 15 s


@given(before=st.text(max_size=20), after=st.text(max_size=20))
def test_credential_at_the_beginning_of_a_word_is_found(before: str, after: str) -> None:
    assert warnings_of(f"{before} {EXAMPLES['a Slack token'][0]} {after}")
