"""The page as the server sends it; tests/surfaces/browser/ has what a browser makes of it."""

from tests.support.curl import Curl


async def test_page_is_sent_with_a_policy_that_loads_nothing_from_elsewhere(curl: Curl) -> None:
    answered = await curl.get("/")
    assert answered.status_code == 200
    policy = dict(part.split(" ", 1) for part in answered.headers["content-security-policy"].split("; "))
    assert policy.pop("script-src").startswith("'sha256-")
    assert policy.pop("style-src").startswith("'sha256-")
    assert policy == {
        "default-src": "'none'",
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert answered.headers["x-content-type-options"] == "nosniff"
    assert answered.headers["referrer-policy"] == "no-referrer"
    assert "innerHTML" not in answered.text  # names and values become text nodes
