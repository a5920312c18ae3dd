"""What the data looks like: Kafka's messages and our tables, each declared once."""
