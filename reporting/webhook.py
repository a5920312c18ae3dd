"""Posts to a webhook, whose address holds secrets: what went wrong is said without it."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request

_TRIES = 3
_TIMEOUT_S = 10
_WAIT_S = 1.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: what answers behind one has got a GET, without the anomalies."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Make no request, which leaves the redirect an error."""


def post(url: str, body: bytes) -> str | None:
    """Post, some times if need be; give the reason if it did not work, without the address."""
    reason = "no answer"
    opener = urllib.request.build_opener(_NoRedirects)
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_WAIT_S * 2 ** (attempt - 1))
        request = urllib.request.Request(  # noqa: S310 - options allow http and https alone
            url, body, {"Content-Type": "application/json"}
        )
        try:
            with opener.open(request, timeout=_TIMEOUT_S):
                return None
        except urllib.error.HTTPError as error:
            if error.code in _REDIRECTS:
                return "the webhook redirects to another address"
            reason = f"the webhook answered {error.code}"
            if error.code < 500 and error.code != 429:  # noqa: PLR2004 - it will not change its mind
                return reason
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", None) or type(error).__name__)
    return reason
