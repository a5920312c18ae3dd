"""The full history of every Kafka consumer group, as Delta tables: what pip installs."""
