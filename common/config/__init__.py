"""Reads YAML files key by key, with positions for mistakes; config.yaml and its values."""
