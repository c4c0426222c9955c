"""The JobManager's console: the state of a job, in the browser and as JSON."""
