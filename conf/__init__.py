"""Settings, shipped with the code: properties of Spark, JARs, thresholds of the detectors."""
