"""The wheel carries results/, the tables at the papers' own sizes, as rankscope/results/."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithResults(build_py):
    """Copies the tables into the package while a wheel is built; an editable install reads results/ where it is."""

    def run(self) -> None:
        """Build the package, then copy."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "rankscope" / "results"
            target.mkdir(parents=True, exist_ok=True)
            for file in sorted(Path("results").iterdir()):
                if file.suffix in {".parquet", ".json", ".md"}:
                    shutil.copyfile(file, target / file.name)


setup(cmdclass={"build_py": WithResults})
