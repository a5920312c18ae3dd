"""What is wrong with groups and their log: detectors over the history."""
