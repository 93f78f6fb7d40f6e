"""The page as the server sends it; tests/surfaces/browser/ has what a browser makes of it."""

from tests.support.curl import Curl
from tests.support.page_policy import require_page_headers


async def test_page_is_sent_with_a_policy_that_loads_nothing_from_elsewhere(curl: Curl) -> None:
    answered = await curl.get("/")
    assert answered.status_code == 200
    require_page_headers(answered.headers)
    assert "innerHTML" not in answered.text  # names and values become text nodes
