"""A notebook's libraries come without the grammar of web addresses, which comes when it is used."""

import json
import subprocess
import sys

CODE = """
import json, sys
import {first}
import nbformat
from jsonschema import Draft7Validator
light = "lark" not in sys.modules
checker = Draft7Validator.FORMAT_CHECKER
found = [checker.conforms(text, "iri") for text in ("https://example.org/ü", "no address")]
import rfc3987_syntax
print(json.dumps([light, found, "lark" in sys.modules, rfc3987_syntax.is_valid_syntax_iri("a:b")]))
"""


def printed(code: str) -> list:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_grammar_of_addresses_comes_with_the_first_address():
    assert printed(CODE.format(first="autograde")) == [True, [True, False], True, True]


LAB = """
import contextlib, json, runpy, sys
sys.argv = ["jupyter-lab", "--version"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr):
    runpy.run_module("course.desk_lab", run_name="__main__")
print(json.dumps(["jsonschema" in sys.modules, "lark" in sys.modules]))
"""


def test_the_desks_jupyterlab_starts_without_it():
    assert printed(LAB) == [True, False]
