"""Reads YAML files key by key, with positions of mistakes; config.yaml and its values."""
