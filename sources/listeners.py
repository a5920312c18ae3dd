"""Whether anything listens at the addresses of a cluster."""

from __future__ import annotations

import socket

from schemas.errors import SourceError

REFUSED = (
    "no broker answered: each address refuses the connection, so nothing listens there. Check the"
    " ports, and that the brokers run"
)
_WAIT_S = 1.0


def refuse_closed_ports(servers: str) -> None:
    """Refuse addresses, as HOST:PORT,…, at each of which the port is closed.

    Kafka's clients try again for as long as they wait for an answer. Whatever else is wrong, a name
    without an address or a host that is silent, they tell.
    """
    if all(map(_is_closed, servers.split(","))):
        raise SourceError(f"{servers}: {REFUSED}")


def _is_closed(server: str) -> bool:
    host, _, port = server.strip().rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _WAIT_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
