"""Warnings about values that look like well-known credentials, by the prefixes and shapes that their issuers document.

A warning names the kind of credential, never a part of the value. The patterns are those of pydantic's default engine,
whose time is linear in the text (https://docs.rs/regex/latest/regex/#untrusted-input).
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pydantic_core import SchemaValidator, core_schema

from holdlog.adapters.api.values.responses import Warned
from holdlog.domain.commands import Outcome

Answer = TypeVar("Answer", bound=Warned)

_WORD: Final = r"(?:(?-u:\b)|\\[bfnrt])"
"""The beginning of a word in JSON text, or after an escaped control character."""

KINDS: Final = {
    "a private key": r"-----BEGIN (?:[A-Z0-9]+ ){0,2}PRIVATE KEY(?: BLOCK)?-----",
    "an AWS access key": rf"{_WORD}A[KS]IA[A-Z2-7]{{16}}(?-u:\b)",
    "a GitHub token": rf"{_WORD}(?:gh[oprsu]_[A-Za-z0-9]{{36}}|github_pat_[A-Za-z0-9]{{22}}_[A-Za-z0-9]{{59}})",
    "a GitLab token": rf"{_WORD}gl(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat)-[A-Za-z0-9_-]{{20}}",
    "a Slack token": rf"{_WORD}(?:xox[a-z]-[0-9]{{8,}}-[A-Za-z0-9-]{{10}}|xox[a-z.]{{1,6}}-1-[A-Za-z0-9]{{40}}"
    rf"|xapp-[0-9]-[A-Z0-9]{{8,}}-[0-9]{{8,}}-[a-f0-9]{{32}})",
    "a Slack webhook": r"hooks\.slack\.com/services/T[A-Z0-9]{8,}/B[A-Z0-9]{8,}/[A-Za-z0-9]{20}",
    "a Stripe key": rf"{_WORD}(?:[rs]k_live_[A-Za-z0-9]{{16}}|whsec_[A-Za-z0-9+/]{{32}})",
    "an Anthropic key": rf"{_WORD}sk-ant-[a-z0-9]{{3,10}}-[A-Za-z0-9_-]{{20}}",
    "an OpenAI key": rf"{_WORD}sk-(?:(?:admin|proj|svcacct)-[A-Za-z0-9_-]{{20}}"
    r"|[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20})",
    "a Google API key": rf"{_WORD}AIza[A-Za-z0-9_-]{{35}}",
    "a Google client secret": rf"{_WORD}GOCSPX-[A-Za-z0-9_-]{{28}}",
    "a Hugging Face token": rf"{_WORD}hf_[A-Za-z0-9]{{34}}",
    "an npm token": rf"{_WORD}npm_[A-Za-z0-9]{{36}}",
    "a PyPI token": rf"{_WORD}pypi-AgE[A-Za-z0-9_-]{{50}}",
    "a SendGrid key": rf"{_WORD}SG\.[A-Za-z0-9_-]{{22}}\.[A-Za-z0-9_-]{{43}}",
    "a JSON web token": rf"{_WORD}eyJ[A-Za-z0-9_-]{{10,}}\.eyJ[A-Za-z0-9_-]{{10,}}\.[A-Za-z0-9_-]{{20}}",
    "a holdlog token": rf"{_WORD}holdlog_[a-z0-9-]{{1,64}}_[A-Za-z0-9_-]{{43}}",
}
"""The kinds of credentials, each with the pattern of its text."""

_ADVICE: Final = (
    "the history keeps it; if it is real, revoke it where it was issued, and ask a person to run holdlog redact"
)


def _validator(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))


_ANY: Final = _validator("|".join(KINDS.values()))
_EACH: Final = {kind: _validator(pattern) for kind, pattern in KINDS.items()}


def with_warnings(
    answer: Callable[[Outcome], Answer], texts: Sequence[str], numbered: bool = False
) -> Callable[[Outcome], Answer]:
    """`answer` with a warning for each kind of credential in these JSON texts. `numbered`: each text is that of an
    operation, and a warning names the first that has it."""
    for text in texts:
        if _ANY.isinstance_python(text):
            break
    else:
        return answer
    first: dict[str, int] = {}
    for index, text in enumerate(texts):
        for kind in KINDS:
            if kind not in first and _EACH[kind].isinstance_python(text):
                first[kind] = index
    warnings = [
        f"the value{f' of operation {first[kind]}' if numbered else ''} looks like {kind}: {_ADVICE}"
        for kind in KINDS
        if kind in first
    ]
    return lambda outcome: answer(outcome).model_copy(update={"warnings": warnings})
