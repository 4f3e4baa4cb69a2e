"""Starts the root scripts: with the checkout's own virtual environment where the current one lacks the packages."""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV_PYTHON = ROOT / ".venv" / "bin" / "python"


def use_project() -> None:
    """Make `rlcb` importable, going over to .venv if need be; says in one line what to do if that is not possible."""
    sys.path.insert(0, str(ROOT / "src"))
    if importlib.util.find_spec("torch") and importlib.util.find_spec("pydantic"):
        return
    inside = Path(sys.prefix).resolve() == VENV_PYTHON.parent.parent.resolve()
    if VENV_PYTHON.exists() and not inside:
        os.execv(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv])
    name = Path(sys.argv[0]).name
    print(f"{name}: error: the packages are not installed; run: bash scripts/setup.sh", file=sys.stderr)
    sys.exit(6)
