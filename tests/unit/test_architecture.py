"""What docs/architecture.md says about the code is true: the import order, the paths it names, the sizes."""

import ast
import re
from pathlib import Path

from helpers.processes import ROOT

PACKAGE = ROOT / "src" / "rlcb"
DOCUMENT = (ROOT / "docs" / "architecture.md").read_text()
MOST_LINES = 450  # of a source file
MOST_MODULES = 15  # at the top of the package


def sources() -> dict[str, Path]:
    """Every module by its name."""
    named = {}
    for path in PACKAGE.rglob("*.py"):
        words = path.relative_to(PACKAGE.parent).with_suffix("").parts
        named[".".join(words[:-1] if words[-1] == "__init__" else words)] = path
    return named


def unit_of(module: str) -> str:
    """The package or top-level module that a module belongs to."""
    return module.split(".")[1] if "." in module else module


def imported(path: Path) -> set[str]:
    """The modules of this package that a file imports anywhere, also inside functions and for type checking."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "rlcb":
            names = [alias.name for alias in node.names]
            found |= {node.module} if "." in node.module else {f"rlcb.{name}" for name in names if name[0] != "_"}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("rlcb.")}
    return found


def documented_order() -> dict[str, int]:
    """The line of each unit in the document's list."""
    section = DOCUMENT.split("## Import order")[1]
    lines = section.split("```")[1].strip().splitlines()
    return {unit: number for number, line in enumerate(lines) for unit in line.split()}


def test_imports_point_down_the_documented_list() -> None:
    order = documented_order()
    units = {unit_of(module) for module in sources()} - {"rlcb", "__main__"}
    assert units == set(order)
    wrong = []
    for module, path in sources().items():
        here = unit_of(module)
        for other in imported(path) if here in order else ():
            there = unit_of(other)
            if there != here and order[there] <= order[here]:
                wrong.append(f"{module} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_modules_inside_a_package_do_not_import_each_other_in_a_circle() -> None:
    """At run time, that is: what only the type checker imports does not count."""
    names = sources()
    graph: dict[str, set[str]] = {}
    for module, path in names.items():
        tree = ast.parse(path.read_text())
        graph[module] = {
            node.module
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module in names and node.module != module
        }

    def reachable(start: str) -> set[str]:
        found, todo = set(), [start]
        while todo:
            fresh = graph[todo.pop()] - found
            found |= fresh
            todo += fresh
        return found

    circles = [module for module in graph if module in reachable(module)]
    assert not circles, circles


def test_source_files_are_short_and_few_are_loose() -> None:
    long = {name: size for name, path in sources().items() if (size := len(path.read_text().splitlines())) > MOST_LINES}
    assert not long, long
    loose = [path for path in PACKAGE.glob("*.py") if path.stem not in ("__init__", "__main__")]
    assert len(loose) <= MOST_MODULES, loose


def test_the_path_of_a_sample_is_as_short_as_documented_and_exists() -> None:
    section = DOCUMENT.split("## One sample")[1].split("\n## ")[0]
    rows = re.findall(r"^\| \d+ \| `([\w.]+)`: .*? \| `([\w/]+\.py)` \|$", section, re.MULTILINE)
    assert 10 <= len(rows) <= 12
    assert len({file for _, file in rows}) <= 8
    for function, file in rows:
        tree = ast.parse((PACKAGE / file).read_text())
        *owner, name = function.split(".")
        scope = next(node for node in tree.body if getattr(node, "name", "") == owner[0]) if owner else tree
        assert any(getattr(node, "name", "") == name for node in scope.body), f"{file} has no {function}"
    words = section.split("With IMPALA's")[1]
    files = set(re.findall(r"`([\w/]+\.py)`", words))
    assert 10 <= len(files) <= 12
    assert all((PACKAGE / file).is_file() for file in files)


def test_the_file_map_names_what_exists() -> None:
    section = DOCUMENT.split("## Files")[1].split("\n## ")[0]
    for folder, words in re.findall(r"^\| `src/rlcb/(\w+)/` \| (.*?) \|$", section, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", words):
            where = PACKAGE / folder / f"{name}.py"
            assert where.is_file() or name in ("base", "auto", "benchmark"), f"{where} is named in the file map"
        present = {path.stem for path in (PACKAGE / folder).glob("*.py")} - {"__init__"}
        named = set(re.findall(r"`(\w+)`", words))
        if named & present:  # a folder whose files are listed is listed whole
            assert folder == "networks" or present <= named, f"{folder}: {sorted(present - named)} missing in the map"
