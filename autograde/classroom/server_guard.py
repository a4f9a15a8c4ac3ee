"""A Jupyter server extension: formgrader's and JupyterLab's pages tell a browser what it may run.

    formgrader's page of a submission    only nbgrader's own scripts: each has this page's nonce
    files next to a submission            nothing: sent to be stored, and sandboxed
    every other page                     no request to other machines, no frames of theirs

It is the wall behind the cleaning (`clean`): should something of a student's get through, a browser
still refuses to run it. It is enabled for every server of this environment by
etc/jupyter/jupyter_server_config.d; where formgrader isn't loaded it does nothing.
"""

from __future__ import annotations

import secrets
from typing import Any

from jinja2 import Environment
from jinja2.ext import Extension

LAB = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "media-src 'self' data: blob:; connect-src 'self' data: blob: ws: wss:; "
    "worker-src 'self' blob:; frame-src 'self' blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'self'"
)
MATHJAX = "https://cdnjs.cloudflare.com/ajax/libs/mathjax/"
SHOWN = (
    "default-src 'none'; script-src 'nonce-{nonce}' " + MATHJAX + "; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline' " + MATHJAX + "; img-src 'self' data:; "
    "font-src 'self' data: " + MATHJAX + "; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
STORED = "default-src 'none'; sandbox"


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": "autograde.classroom.server_guard"}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Put the policies up. Called by Jupyter for each server that it starts."""
    if not any("formgrader" in name and on for name, on in server.jpserver_extensions.items()):
        return
    server.web_app.settings.setdefault("headers", {}).setdefault("Content-Security-Policy", LAB)
    _guard_formgrader()


class WithNonce(Extension):
    """Gives the scripts of nbgrader's own templates a nonce, in their source.

    So no text that is put into a page later, be it a student's name, can get one.
    """

    nonce = ""
    """Of the page that is being made."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        environment.globals["csp_nonce"] = lambda: self.nonce

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """A template as nbgrader wrote it, with nonces; handlers in attributes made scripts."""
        source = source.replace("<script", '<script nonce="{{ csp_nonce() }}"')
        source = source.replace('onclick="toggle_name(true);"', 'data-names="true"')
        source = source.replace('onclick="toggle_name(false);"', 'data-names="false"')
        source = source.replace("function toggle_name(on)", f"{ON_CLICK}function toggle_name(on)")
        for field in ("student", "last_name", "first_name"):
            source = source.replace(f"resources.{field} -", f"resources.{field} | e -")
            source = source.replace(f"resources.{field} }}}}", f"resources.{field} | e }}}}")
        return source


ON_CLICK = (
    '$(document).on("click", "[data-names]", '
    'function() { toggle_name(this.dataset.names === "true"); });\n'
)


def _guard_formgrader() -> None:
    """Have formgrader's pages of submissions, and the files next to them, sent with a policy."""
    from nbgrader.server_extensions.formgrader import handlers

    page, files = handlers.SubmissionHandler, handlers.SubmissionFilesHandler
    if hasattr(page, "csp_nonce"):
        return
    page.csp_nonce = ""
    page.exporter = property(_exporter)
    page.content_security_policy = property(lambda self: SHOWN.format(nonce=_nonce(self)))
    files.content_security_policy = property(lambda self: STORED)
    files.set_extra_headers = _to_be_stored


def _nonce(handler: Any) -> str:
    handler.csp_nonce = handler.csp_nonce or secrets.token_urlsafe(16)
    return handler.csp_nonce


def _to_be_stored(handler: Any, _path: str) -> None:
    if handler.request.headers.get("Sec-Fetch-Dest") != "image":
        handler.set_header("Content-Disposition", "attachment")


class _Exporter:
    """nbgrader's exporter, told the nonce of the page that is being made."""

    def __init__(self, exporter: Any, nonce: str) -> None:
        self.exporter, self.nonce = exporter, nonce

    def from_filename(self, filename: str, resources: dict[str, Any]) -> Any:
        """The page of a notebook."""
        environment = self.exporter.environment
        if WithNonce.identifier not in environment.extensions:
            environment.add_extension(WithNonce)
            environment.cache.clear()
        environment.extensions[WithNonce.identifier].nonce = self.nonce
        return self.exporter.from_filename(filename, resources=resources)


def _exporter(handler: Any) -> _Exporter:
    return _Exporter(handler.settings["nbgrader_exporter"], _nonce(handler))
