"""Savepoints: all that a job knows at one moment, in files, and back from files into a job."""
