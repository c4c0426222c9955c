"""What a pipeline is made of: record batches, processors and state stores."""
