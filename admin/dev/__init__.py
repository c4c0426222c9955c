"""`pipeline dev`: a Kafka and all daemons of a job in one terminal, with reload on save."""
