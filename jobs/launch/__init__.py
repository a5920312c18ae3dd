"""What becomes spark-submit: the JARs, the code that is shipped, the command that starts a job."""
