"""The jobs: thin scripts that read tables, call transforms and write tables.

Ctrl-C and SIGTERM end each with a line, also while it still imports what it needs.
"""

import launch  # noqa: F401 - it sees to that, before anything else
