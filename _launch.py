"""What the root scripts call: a command, in the checkout's virtual environment where this Python lacks the packages."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
VENV_PYTHON = ROOT / ".venv" / "bin" / "python"
SCRIPT = Path(sys.argv[0]).name


def train(algorithm: str, mode: str, timed: bool) -> NoReturn:
    """Train with the flags of a documented script."""
    _use_project()
    from rlcb.cli import train_script

    sys.exit(train_script(SCRIPT, algorithm, mode, timed))


def evaluate(universal: bool) -> NoReturn:
    """Evaluate a trained policy; `universal`: takes --algorithm."""
    _use_project()
    from rlcb.cli import evaluate

    sys.exit(evaluate(prog=SCRIPT, universal=universal))


def compare() -> NoReturn:
    """Compare a sequential and a parallel run."""
    _use_project()
    from rlcb.cli import compare_script

    sys.exit(compare_script(SCRIPT))


def check() -> NoReturn:
    """Check the Python that runs this, whatever the virtual environment has."""
    _start()
    from rlcb.cli import doctor

    sys.exit(doctor(sys.argv[1:], SCRIPT))


def _start() -> None:
    """Make `rlcb` importable and begin as its commands do."""
    sys.path.insert(0, str(ROOT / "src"))
    from rlcb.flags import start_program

    start_program()


def _use_project() -> None:
    """Have the packages that `rlcb` needs, if need be by going over to .venv; if that fails, say what to do."""
    _start()
    if importlib.util.find_spec("torch") and importlib.util.find_spec("pydantic"):
        return
    inside = Path(sys.prefix).resolve() == VENV_PYTHON.parent.parent.resolve()
    if VENV_PYTHON.exists() and not inside:
        os.execv(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv])
    print(f"{SCRIPT}: error: the packages are not installed; run: bash scripts/setup.sh", file=sys.stderr)
    sys.exit(6)
