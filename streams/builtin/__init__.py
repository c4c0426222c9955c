"""The processors that pipeline.yaml has without any user code: `forward`, `sum` and `count`."""
