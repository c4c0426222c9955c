"""What a job is to run: versions of its pipeline, what is asked of them, and what a change does."""
