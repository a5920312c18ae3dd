"""The Delta tables of a lakehouse: made, read and written here and nowhere else."""
