"""What the desk's JupyterLab does otherwise: what a kernel says reaches the page at once.

A kernel answers a widget's message with three small ones: busy, the new picture, idle. On a socket
as it comes, the operating system sends the first and holds the second back until the browser has
acknowledged it (Nagle's algorithm), and the browser waits 40 ms with that. So a picture came 43 ms
after it was made, and 8 ms with `TCP_NODELAY`. (Nagle, RFC 896; tornado's
`WebSocketHandler.set_nodelay`.)
"""

from __future__ import annotations

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection


class PromptConnection(ZMQChannelsWebsocketConnection):
    """A page's connection to its kernel that holds no message back."""

    def connect(self) -> object:
        """As the server does, on a socket that sends at once."""
        self.websocket_handler.set_nodelay(True)
        return super().connect()
