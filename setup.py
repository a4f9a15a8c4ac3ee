"""Put the released notebooks into the package, so that `course lab` finds them without a clone."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithNotebooks(build_py):
    """notebooks/*.ipynb become course/notebooks/; notebooks/source, with the solutions, stays."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # a clone has them next to the package
            return
        target = Path(self.build_lib, "course", "notebooks")
        target.mkdir(parents=True, exist_ok=True)
        for notebook in sorted(Path(__file__).parent.glob("notebooks/*.ipynb")):
            self.copy_file(str(notebook), str(target))


setup(cmdclass={"build_py": BuildWithNotebooks})
