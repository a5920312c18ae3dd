"""One self-contained HTML page of how the groups are and what they did: rows in, text out."""
