"""`pipeline rehearse`: starts the shadow of a job on this machine, and shows what differs."""
