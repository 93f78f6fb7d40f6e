"""Build the documentation site into build/site (`make docs`); exit with 1 when a link or an anchor is broken.

The pages link to files outside docs/, which work in a checkout and on GitHub but not on a site of docs/ alone. So the
site is built from a copy of docs/ in which these links lead to the repository.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
COPY = ROOT / "build" / "docs"
REPOSITORY = "https://github.com/holdlog/holdlog"
PUBLISHED = {".md", ".png", ".svg"}
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)\s]+)")


def main() -> None:
    shutil.rmtree(COPY, ignore_errors=True)
    for source in sorted(path for path in DOCS.rglob("*") if path.suffix in PUBLISHED):
        target = COPY / source.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(for_the_site(source))
        else:
            shutil.copyfile(source, target)
    command = ["zensical", "build", "--strict", "--clean", "--config-file", str(ROOT / "zensical.toml")]
    sys.exit(1 if subprocess.run(command, check=False).returncode else 0)


def for_the_site(page: Path) -> str:
    """The text of a page whose links to files outside docs/ lead to the repository."""

    def replace(link: re.Match[str]) -> str:
        path = Path(os.path.normpath(page.parent / link[2].partition("#")[0]))
        if path.is_relative_to(DOCS) and path.suffix in PUBLISHED:
            return link[0]
        if not path.exists():
            sys.exit(f"{page.relative_to(ROOT)}: the link {link[2]} leads nowhere")
        kind = "tree" if path.is_dir() else "blob"
        anchor = link[2].removeprefix(link[2].partition("#")[0])
        return f"{link[1]}{REPOSITORY}/{kind}/main/{path.relative_to(ROOT).as_posix()}{anchor}"

    return LINK.sub(replace, page.read_text())


if __name__ == "__main__":
    main()
