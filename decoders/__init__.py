"""Bytes to Arrow columns and back, driven by the declarations in ``schemas``; no Spark here."""
