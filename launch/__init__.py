"""From the words of a command line to a process that runs a job: options, JARs, shipped code."""

from launch import signals  # noqa: F401 - from now on they end the process with a line
