"""A webhook of this machine that keeps what it is sent, and anomalies to post to it."""

from __future__ import annotations

import datetime as dt
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NOW = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.timezone.utc)
SECRET = "canary-b7d1"  # noqa: S105 - made up


class Webhook:
    """A server that keeps what it is sent, and answers as configured."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.asked: list[str] = []
        self.answers: list[int | bytes] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append(self.command)
                answer = outer.answers.pop(0) if outer.answers else 200
                if isinstance(answer, bytes):
                    self.wfile.write(answer)
                    return
                if answer == 200:
                    outer.received.append(json.loads(body))
                self.send_response(answer)
                if 300 <= answer < 400:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def do_GET(self) -> None:
                outer.asked.append(self.command)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/${{env:HOOK_SECRET}}"

    @property
    def posted(self) -> list[str]:
        """The ids of all anomalies that arrived, in their order."""
        return [a["anomaly_id"] for message in self.received for a in message["anomalies"]]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def anomaly(name: str, severity: str = "warning", **given: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "anomaly_id": name,
        "kind": "rebalance_storm",
        "severity": severity,
        "group_id": "<!channel> & co\n",
        "summary": "<!channel> & co\n rebalanced 5 times",
        "started_at": NOW - dt.timedelta(hours=1),
        "ended_at": NOW - dt.timedelta(minutes=5),
        "is_open": False,
        "is_settled": False,
        **given,
    }
