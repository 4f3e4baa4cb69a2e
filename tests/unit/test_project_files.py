"""Files that a code host and other tools read: they agree with the project."""

import tomllib
from pathlib import Path
from typing import Any

import yaml

import rlcb
from helpers.processes import ROOT


def parsed(path: str) -> Any:
    return yaml.load((ROOT / path).read_text(encoding="utf-8"), yaml.BaseLoader)


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)["project"]
    return found


def test_the_citation_is_of_this_version() -> None:
    citation = parsed("CITATION.cff")
    assert citation["version"] == rlcb.__version__
    assert citation["license"] == project()["license"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)  # what the format requires


def test_the_workflow_runs_the_documented_tests_with_every_supported_python() -> None:
    jobs = parsed(".github/workflows/ci.yml")["jobs"]
    commands = {name: [step.get("run") for step in job["steps"]] for name, job in jobs.items()}
    assert "bash scripts/test.sh" in commands["test"]
    assert "bash scripts/test.sh" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make docs" in commands["docs"]
    versions = jobs["test"]["strategy"]["matrix"]["python-version"]
    assert project()["requires-python"] == f">={versions[0]},<3.{int(versions[-1].split('.')[1]) + 1}"


def test_the_hooks_are_the_checks_of_the_test_script() -> None:
    script = (ROOT / "scripts/test.sh").read_text(encoding="utf-8")
    hooks = [hook for repository in parsed(".pre-commit-config.yaml")["repos"] for hook in repository["hooks"]]
    assert [hook["id"] for hook in hooks] == ["ruff", "ruff-format", "mypy"]
    for hook in hooks:
        assert hook["language"] == "system"  # nothing is downloaded
        assert hook["entry"].removesuffix(" --force-exclude") in script


def test_issue_forms_have_what_a_code_host_requires() -> None:
    for form in sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")):
        content = parsed(str(form.relative_to(Path(ROOT))))
        assert {"name", "description", "body"} <= set(content)
        assert len({part["id"] for part in content["body"]}) == len(content["body"])
