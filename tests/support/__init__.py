"""What several kinds of tests share: a real broker, real clients."""
