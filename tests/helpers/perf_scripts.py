"""Scripts of perf/, run as a user runs them."""

import subprocess
import sys
from pathlib import Path

from helpers.processes import ROOT


def run_script(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "perf" / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
