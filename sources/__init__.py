"""Where records come from: a live cluster or Parquet files; both give the rows of bronze."""
