"""deploy/kubernetes.yaml, as far as can be told without a cluster: its fields, options, paths, names and rights."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from holdlog.adapters.cli.http import http_options_of
from holdlog.adapters.cli.main import parsed
from holdlog.adapters.http.operations.routes import PROBE_TIMEOUT
from tests.documents.test_containers import instruction
from tests.support.curl import openapi_document

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy/kubernetes.yaml").read_text()
PARTS: dict[str, dict[str, Any]] = {part["kind"]: part for part in yaml.safe_load_all(TEXT)}
POD = PARTS["Deployment"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


@pytest.mark.parametrize("version", ["1.29", "1.33"])
@pytest.mark.parametrize("kind", PARTS)
def test_kubernetes_schema_accepts_every_field(kind: str, version: str) -> None:
    kubernetes_validate.validate(PARTS[kind], version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(PARTS[kind] | {"unknown": 1}, version, strict=True)


def test_manifest_arguments_and_variables_are_options_of_holdlog(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in CONTAINER["env"]:
        monkeypatch.setenv(variable["name"], "postgresql://holdlog@db.example/team")
    options = parsed(CONTAINER["args"])
    http = http_options_of(options)
    assert (options.transport, http.host, options.auth, http.access_log) == ("http", "0.0.0.0", True, "json")
    assert [port["containerPort"] for port in CONTAINER["ports"]] == [http.port]
    assert [variable["name"] for variable in CONTAINER["env"]] == ["HOLDLOG_DB"]
    assert http.drain + 10 < POD["terminationGracePeriodSeconds"]


def test_manifest_takes_secrets_from_a_kubernetes_secret_only() -> None:
    for variable in CONTAINER["env"]:
        assert variable["valueFrom"]["secretKeyRef"]["name"] == "holdlog"
    assert "Secret" not in PARTS
    assert not re.search(r"postgresql://\S+:[^…@]+@", TEXT)


def test_probes_use_existing_paths_and_wait_longer_than_the_server() -> None:
    served = openapi_document()["paths"]
    for name in PROBES:
        probe = CONTAINER[name]
        assert probe["httpGet"]["path"] in served
        assert served[probe["httpGet"]["path"]]["get"]["security"] == []
        assert probe["httpGet"]["port"] == CONTAINER["ports"][0]["name"]
        assert probe["timeoutSeconds"] > PROBE_TIMEOUT
    assert CONTAINER["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_server_has_no_unneeded_rights() -> None:
    user, group = instruction("USER").split(":")
    assert POD["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": int(user),
        "runAsGroup": int(group),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert POD["automountServiceAccountToken"] is False
    assert not POD.keys() & {"hostNetwork", "hostPID", "hostIPC"}


def test_service_named_holdlog_does_not_change_its_port() -> None:
    """Kubernetes would set HOLDLOG_PORT=tcp://…"""
    assert PARTS["Service"]["metadata"]["name"] == "holdlog"
    assert POD["enableServiceLinks"] is False


def test_all_objects_select_the_same_pods() -> None:
    labels = PARTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert PARTS["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert PARTS["Service"]["spec"]["selector"] == labels
    assert PARTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert PARTS["PodDisruptionBudget"]["spec"]["minAvailable"] < PARTS["Deployment"]["spec"]["replicas"]
    assert PARTS["Service"]["spec"]["ports"][0]["targetPort"] == CONTAINER["ports"][0]["name"]
