"""The rights that a job needs in Kafka, and the forms in which tools take them."""
