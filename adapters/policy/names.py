"""How a process that runs for long names files: by the worktrees that there are now, and by `holdlog.toml`."""

import os
from collections.abc import Mapping, Sequence

from holdlog.adapters.operating_system.workspaces import Workspaces, find_workspaces
from holdlog.adapters.policy.in_force import DEFAULT_RULE, FILE, is_shared, read_policy


class CurrentNames:
    """As Workspaces, which are found again when worktrees come or go, and before a refusal. A claim of a file that only
    a person may change is refused: hooks would deny its edit."""

    def __init__(self, environ: Mapping[str, str], cwd: str, store: str, named: Sequence[str] = ()) -> None:
        """Raises InvalidError for `named`."""
        self._arguments = environ, cwd, store, named, is_shared
        self._find()

    def resolve(self, text: str, is_new: bool = False) -> str:
        if self._stamp != self._read_stamp():
            self._find()
        try:
            resource = self._names.resolve(text, is_new)
        except ValueError:
            self._find()  # the stamp does not show that a worktree was moved
            resource = self._names.resolve(text, is_new)
        if is_new:
            self._require_agents(resource)
        return resource

    def format_name(self, resource: str) -> str:
        return self._names.format_name(resource)

    def list_elsewhere(self, resource: str) -> list[tuple[str, str]]:
        return self._names.list_elsewhere(resource)

    def find_doubt(self, resource: str) -> str:
        return self._names.find_doubt(resource)

    def _find(self) -> None:
        self._names: Workspaces = find_workspaces(*self._arguments)
        self._stamp = self._read_stamp()

    def _read_stamp(self) -> int:
        try:
            return os.stat(f"{self._names.common}/worktrees").st_mtime_ns
        except OSError:
            return 0

    def _require_agents(self, resource: str) -> None:
        file = self._names.find_file(resource)
        root = next((it.root for it in self._names.known if f"{file}".startswith(f"{it.root}/")), None)
        rule = DEFAULT_RULE if root is None else read_policy(root).find_rule(f"{file}"[len(root) + 1 :])
        if rule.mode == "human":
            raise ValueError(
                f"only a person may change this file ({FILE}); describe the change that you need to the person"
                " you work for"
            )
