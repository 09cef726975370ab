"""Jupyter's configuration for `playbook lab`: loopback only, this Python's kernel, a websocket without waits.

Jupyter runs this file with `get_config` in its namespace; imported, it only defines the hook.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any


def send_at_once(protocol: Any) -> bool:
    """Switch on TCP_NODELAY for the websockets of a tornado protocol class; return whether that was possible.

    Without it a reply of several small messages waits 40 ms for the browser's acknowledgement (Nagle's
    algorithm against delayed ACK): 48 ms from slider to picture where 12 ms are possible.
    """
    begin: Callable[..., Any] | None = getattr(protocol, "start_pinging", None)
    if begin is None or not hasattr(protocol, "set_nodelay"):
        return False

    def start_pinging(self: Any, *arguments: Any, **options: Any) -> Any:
        with contextlib.suppress(Exception):  # the connection may be closing: never lose a kernel over speed
            self.set_nodelay(True)
        return begin(self, *arguments, **options)

    protocol.start_pinging = start_pinging
    return True


def hook_tornado() -> bool:
    """Apply `send_at_once` to this process's tornado, if it has the class we know."""
    try:
        from tornado.websocket import WebSocketProtocol13
    except ImportError:
        return False
    return send_at_once(WebSocketProtocol13)


def configure(c: Any) -> None:
    """Fill Jupyter's configuration."""
    c.ServerApp.ip = "127.0.0.1"
    c.ServerApp.allow_remote_access = False
    # Jupyter refuses root for servers that others can reach; this one stays here, and containers run as root.
    c.ServerApp.allow_root = hasattr(os, "geteuid") and os.geteuid() == 0
    c.LabApp.default_url = "/lab/tree/00_start.ipynb"
    c.LabApp.news_url = None  # it would ask a server on the internet
    c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"


if "get_config" in globals():
    configure(get_config())  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    hook_tornado()
