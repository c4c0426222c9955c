"""The `pipeline` command: make, check and describe a pipeline, and look at a running one."""
