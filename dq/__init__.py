"""What must hold of the tables, as queries that give the rows that break it."""
