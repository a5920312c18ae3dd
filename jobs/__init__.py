"""The jobs: thin scripts that read tables, call transforms and write tables."""
