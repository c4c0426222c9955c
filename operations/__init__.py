"""What operators do to a running job, for the `pipeline` command and the console alike."""
