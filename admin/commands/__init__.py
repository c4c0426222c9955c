"""The commands of `pipeline`, a file each."""
