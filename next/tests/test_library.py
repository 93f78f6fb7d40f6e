"""The classes of the library are those that `make generate` writes."""

import ast
import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_library_is_what_the_operations_say():
    place = importlib.util.spec_from_file_location("write_library", ROOT / "tools" / "write_library.py")
    assert place is not None
    assert place.loader is not None
    writer = importlib.util.module_from_spec(place)
    place.loader.exec_module(writer)
    for path, text in writer.write_files().items():
        assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(path.read_text())), f"run make generate: {path.name}"
