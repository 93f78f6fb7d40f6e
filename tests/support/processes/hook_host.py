"""A host: starts hooks and a stdio server as its children. Reads commands as JSON lines, and answers each with one."""

import json
import os
import shlex
import subprocess
import sys
from typing import Any

SERVER = [sys.executable, "-m", "holdlog", "serve"]
PATIENT = """
import runpy, sys
from holdlog.adapters.hooks import running
running.SECONDS = 60.0
sys.argv = ["holdlog", "hook", *sys.argv[1:]]
runpy.run_module("holdlog", run_name="__main__")
"""
"""`holdlog hook`, but with more time: a hook that runs out of time allows the edit, and tests run on busy machines."""
HOOK = shlex.join([sys.executable, "-c", PATIENT])


class ToolServer:
    """A stdio server, spoken to in JSON-RPC."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._requests = 0
        client = {"name": "host", "version": "1"}
        self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._requests += 1
        self._send({"jsonrpc": "2.0", "id": self._requests, "method": method, "params": params})
        assert self.process.stdout is not None
        while True:
            message: dict[str, Any] = json.loads(self.process.stdout.readline())
            if message.get("id") == self._requests:
                return message

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()


def run_hook(given: dict[str, Any], words: list[str], killed_after: float | None) -> dict[str, Any]:
    """Run a hook as the host does. `words`: its arguments. `killed_after`: seconds; None: it ends by itself."""
    pipe = subprocess.PIPE
    command = ["sh", "-c", f"exec {HOOK} {shlex.join(words)}"]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as hook:
        try:
            out, err = hook.communicate(json.dumps(given), timeout=killed_after)
        except subprocess.TimeoutExpired:
            hook.kill()
            out, err = hook.communicate()
        return {"code": hook.returncode, "out": out, "err": err}


def main() -> None:
    server: ToolServer | None = None
    for line in sys.stdin:
        command = json.loads(line)
        answer: Any = None
        if command["do"] == "hook":
            answer = run_hook(command["given"], command.get("words", []), command.get("killed_after"))
        elif command["do"] == "run":
            done = subprocess.run(
                ["sh", "-c", command["given"]], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            answer = {"code": done.returncode, "out": done.stdout, "err": done.stderr}
        elif command["do"] == "serve":
            server = ToolServer()
            answer = {"pid": server.process.pid, "host": os.getpid()}
        elif command["do"] == "call":
            assert server is not None
            given = {"name": f"holdlog_{command['tool']}", "arguments": command["given"]}
            result = server.request("tools/call", given)["result"]
            answer = result.get("structuredContent") or json.loads(result["content"][0]["text"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
