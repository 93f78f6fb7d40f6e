"""What a shell command did to the files of another session is reported, whatever the host tells about its end."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.hosts import Session, repository, write
from tests.support.programs import HOLDLOG, environment, run

rest = pytest.mark.rest

OPENCODE = """
const {default: plugin} = await import(process.argv[1])
const {execSync} = await import("node:child_process")
const [folder, command] = process.argv.slice(2)
const host = await plugin.server({directory: folder})
const call = {tool: "bash", sessionID: "ses-2", callID: "c-1"}, args = {command, description: "d"}
await host["tool.execute.before"](call, {args})
execSync(command, {cwd: folder})
const output = {title: "", output: "done"}
await host["tool.execute.after"]({...call, args}, output)
console.log(output.output)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = repository(tmp_path / "repo")
    write(root / "Makefile", "all:\n\techo y > src/a.py\n\t@exit $(CODE)\n")
    return root


@pytest.fixture
def one(root: Path) -> Session:
    one = Session(root, "s-1")
    one.change("src/a.py", "x = 2\n")
    return one


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is missing")
def test_command_in_opencode_that_changed_a_held_file_is_reported_to_both(root, one):
    done = run("init", "--yes", "--client", "opencode", cwd=root)
    assert done.code == 0, done
    plugin = root / ".opencode/plugins/holdlog.mjs"
    plugin.write_text((root / ".opencode/plugins/holdlog.js").read_text())
    host = subprocess.run(
        ["node", "--input-type=module", "-e", OPENCODE, str(plugin), str(root), "make CODE=0"],
        cwd=root, env=environment({"PATH": f"{Path(HOLDLOG).parent}:/usr/bin:/bin"}),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "src/a.py (held by claude-" in host.stdout
    assert "changed src/a.py" in one.pre("src/a.py")["additionalContext"]
