"""What every job needs: options, session, sources, tables, and the launcher."""
