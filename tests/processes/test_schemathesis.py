"""schemathesis asks a real server whatever its OpenAPI document allows, and much that it does not."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.http import http_server

CONFIG = Path(__file__).parents[1] / "support" / "fixtures" / "schemathesis.toml"
TOKEN = "schemathesis-0123456789-0123456789-0123456789"
PROGRAM = shutil.which("st", path=str(Path(sys.executable).parent))
NOT_CHECKED = {
    "any": "positive_data_acceptance,unsupported_method",
    "typeable": "negative_data_rejection,response_schema_conformance,response_headers_conformance",
}
"""What the document does not say of names; and what the narrower one says wrongly of the others and of responses."""
TYPEABLE = "^[A-Za-z0-9][A-Za-z0-9_-]{0,40}$"
"""Names that are valid everywhere. The document says nothing about which characters a name may have, because no schema
can: a client must not refuse what the server accepts."""
LATELY = "^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T12:[0-5][0-9]:00Z$"


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="make schemathesis installs what this needs")
@pytest.mark.parametrize("names", ["any", "typeable"])
def test_schemathesis_finds_nothing(tmp_path: Path, names: str) -> None:
    """EXAMPLES: how many for each route. With `typeable` names, valid requests are accepted; with any, no request does
    harm, and every response is a documented one."""
    options = ("--max-requests", "0", "--max-upload", "0", "--max-wait", "1", "--open-tokens")
    with http_server(tmp_path / "state.db", *options, env={"HOLDLOG_AUTH_TOKEN": TOKEN}) as server:
        document = httpx2.get(f"{server.url}/openapi.json").json()
        (tmp_path / "openapi.json").write_text(json.dumps(document if names == "any" else typeable(document)))
        words = [str(PROGRAM), "--config-file", str(CONFIG), "run", str(tmp_path / "openapi.json")]
        words += ["--exclude-checks", NOT_CHECKED[names]]
        words += [
            "--url",
            server.url,
            "--header",
            f"x-token: {TOKEN}",
            "--max-examples",
            os.environ.get("EXAMPLES", "30"),
        ]
        words += ["--no-color", "--workers", "1", "--request-timeout", "10"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
        assert server.process.poll() is None
        assert not [line for line in server.said if "Traceback" in line]


def typeable(schema: Any) -> Any:
    """The document, with schemas of texts that describe only names that everybody can type."""
    if isinstance(schema, list):
        return [typeable(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: typeable(part) for name, part in schema.items()}
    if found.get("format") == "date-time":
        found = {"type": "string", "pattern": LATELY}
    elif found.get("type") == "string" and not found.keys() & {"pattern", "enum", "const"}:
        found["pattern"] = TYPEABLE
    elif found.get("type") == "object" and "additionalProperties" in found and "properties" not in found:
        found["propertyNames"] = {"pattern": TYPEABLE}
    return found
