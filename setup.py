"""Puts the configurations of `config/` into a wheel, as `rlcb/configs/`; all else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigs(build_py):
    """Copies `config/` into the package that is built; an editable install reads the folder itself."""

    def run(self) -> None:
        """Build the package's modules and data, then add the configurations."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "rlcb" / "configs"
            shutil.rmtree(target, ignore_errors=True)  # of an earlier build
            shutil.copytree("config", target, ignore=lambda _, names: [n for n in names if n.startswith(".")])


setup(cmdclass={"build_py": BuildWithConfigs})
