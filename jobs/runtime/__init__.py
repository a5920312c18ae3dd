"""What several jobs need: a run from start to exit status, its session, pages, summaries."""
