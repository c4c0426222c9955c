"""The quickstart: a pipeline over real records, a TaskManager killed half-way, a checked result."""
