"""What notebooks' libraries load at import and hardly anybody uses, loaded when it is used.

jsonschema, and so nbformat, nbgrader and JupyterLab, compiles a grammar of web addresses at import:
1.4 of the 1.7 s of processor time that `import nbformat` takes (lark's Earley parser, from
rfc3987-syntax 1.1). It serves the format "iri", which no schema of a notebook has. So a module of
the same name stands in, which brings the real one at its first use.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

NAME = "rfc3987_syntax"


class StandIn(ModuleType):
    """Answers jsonschema's import; everything else, and the first check, is the real module's."""

    @staticmethod
    def is_valid_syntax(term: str, value: str) -> bool:
        """Whether a text is what the term says, e.g. an "iri"."""
        return _real().is_valid_syntax(term, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by Python itself, of any module
            raise AttributeError(name)
        return getattr(_real(), name)


def put_off_addresses() -> None:
    """Let jsonschema be imported without its grammar of web addresses; does nothing once it is."""
    if NAME not in sys.modules:
        sys.modules[NAME] = StandIn(NAME)


def _real() -> ModuleType:
    if isinstance(sys.modules.get(NAME), StandIn):
        del sys.modules[NAME]
    return importlib.import_module(NAME)
