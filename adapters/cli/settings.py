"""The options of commands: where they come from, and the store that they name. Every command imports it: it must load
fast."""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdlog.adapters.operating_system.location import find_store, is_url
from holdlog.adapters.operating_system.options import ONE_OR_MORE, SWITCH, Option, Rule, declared, option, text
from holdlog.adapters.operating_system.secrets import secret

if TYPE_CHECKING:
    from holdlog.adapters.operating_system.workspaces import Workspaces


@dataclass(frozen=True)
class StoreOptions:
    """The store of a command."""

    db: str | None = option(
        "the store: a file, or postgresql://user@host/database",
        text("PATH|URL"),
        is_secret=True,
        unset="HOLDLOG_DB, or else the store of the git repository; docs/store.md",
    )


@dataclass(frozen=True)
class WorkspaceOptions:
    """How paths become names of resources."""

    workspace: tuple[str, ...] = option(
        "a folder whose paths are file://NAME/…",
        text("NAME=PATH"),
        is_list=True,
        unset="the worktrees of the git repository",
        default=(),
    )
    claims_across_worktrees: bool = option(
        "treat the same path in all worktrees of the repository as one resource",
        SWITCH,
        unset="one in each worktree",
        default=False,
    )


def location_of(db: str | None) -> Path | str:
    """The store named by `--db`, else the environment, else the working folder. Raises LocationError, InvalidError."""
    explicit = named_location(db)
    if explicit is not None and (explicit == ":memory:" or is_url(explicit)):
        return explicit
    environ = os.environ if explicit is None else {**os.environ, "HOLDLOG_DB": explicit}
    return find_store(db, environ, Path.cwd())


def named_location(db: str | None) -> str | None:
    """The store named by `--db`, else the environment. Raises InvalidError."""
    return db if db is not None else secret(os.environ, "HOLDLOG_DB")


def workspaces_of(options: argparse.Namespace) -> "Workspaces":
    """The workspaces: those of the options, else those of `holdlog.toml`. Raises LocationError, InvalidError."""
    from holdlog.adapters.operating_system.workspaces import find_workspaces
    from holdlog.adapters.policy.in_force import is_across_worktrees, project_policy, workspace_options

    named = read_options(WorkspaceOptions, options)
    folders = named.workspace
    if not folders:
        root, found = project_policy(os.environ, Path.cwd())
        folders = workspace_options(root, found.policy, os.environ)
    return find_workspaces(os.environ, Path.cwd(), folders, named.claims_across_worktrees, shares=is_across_worktrees)


def workspaces_here() -> "Workspaces":
    """The workspaces of a command that has no options for them. Raises LocationError, InvalidError."""
    parser = argparse.ArgumentParser(add_help=False)
    add_options(parser, WorkspaceOptions)
    return workspaces_of(parser.parse_args([]))


def policy_settings() -> dict[str, Any]:
    """The fields of Settings that `holdlog.toml` sets; options win over them."""
    from holdlog.adapters.policy.in_force import project_policy

    return dict(project_policy(os.environ, Path.cwd())[1].policy.settings)


def add_options(parser: argparse._ActionsContainer, model: type, unset: Any = None) -> None:
    """Add the flags that the fields of a model declare; their defaults are those of the environment, else `unset`."""
    for each in declared(model):
        if not each.has_flag:
            continue
        given = _from_environment(each)
        if each.rule is SWITCH:
            action = parser.add_argument(each.flag, action="store_true", help=_help(each))
            action.default, action.type = given or False, typed(each.rule, each.variable)
        elif each.is_list:
            listed = [word.strip() for word in (given or "").split(",") if word.strip()]
            parser.add_argument(each.flag, metavar=each.rule.metavar, action="append", default=listed, help=_help(each))
        else:
            parser.add_argument(
                each.flag,
                metavar=None if each.choices else each.rule.metavar,
                type=typed(each.rule, each.variable, each.choices),
                default=unset if given is None else given,
                choices=each.choices or None,
                help=_help(each),
            )


def given_options(model: type, options: argparse.Namespace) -> dict[str, Any]:
    """The fields of a model that the arguments or the environment set."""
    found = {each.field: getattr(options, each.name, None) for each in declared(model)}
    return {
        field: tuple(value) if isinstance(value, list) else value for field, value in found.items() if value is not None
    }


Model = TypeVar("Model")


def read_options(model: type[Model], options: argparse.Namespace) -> Model:
    """The values of a model's fields: those of the arguments or the environment, else the defaults."""
    return model(**given_options(model, options))


def variable_of(model: type, field: str) -> str:
    """The value of one option in the environment, else its default."""
    found = next(each for each in declared(model) if each.field == field)
    given = _from_environment(found)
    return str(found.default) if given is None else given


class _FromEnvironment(str):
    """The text of an option that an environment variable sets."""

    __slots__ = ()


def _from_environment(option: Option) -> _FromEnvironment | None:
    """The text of the option's variable. A secret is read when it is used, because it may be in a file."""
    text = None if option.is_secret else os.environ.get(option.variable)
    return None if text is None or not (text or option.may_be_empty) else _FromEnvironment(text)


def _help(option: Option) -> str:
    repeatable = "; repeatable" if option.is_list else ""
    return f"{option.help}{repeatable} (default: {option.shown_default})".replace("%", "%%")


def typed(rule: Rule, variable: str = "", choices: tuple[str, ...] = ()) -> Callable[[str], Any]:
    """Reads the text of an option for argparse, which itself checks the choices of flags. `variable`: that of the
    option, for messages."""

    def read(text: str) -> Any:
        where = f" (in {variable})" if isinstance(text, _FromEnvironment) else ""
        if choices and not where:
            return text
        try:
            return rule.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}{where}") from None

    return read


def picture_file(name: str) -> Path:
    """Check the path of a picture before the work begins, not after it."""
    path = Path(name).resolve()
    if (path.exists() and not path.is_file()) or not path.parent.is_dir():
        raise argparse.ArgumentTypeError("must be a file in a folder that exists")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError("must be a file that you may write")
    return path


one_or_more = typed(ONE_OR_MORE)
