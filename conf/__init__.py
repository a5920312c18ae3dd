"""Settings, shipped with the code: Spark's properties, JARs, and the thresholds of the detectors."""
