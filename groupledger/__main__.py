"""`python -m groupledger` is the command `groupledger`."""

from __future__ import annotations

from groupledger.command import main

if __name__ == "__main__":
    main()
