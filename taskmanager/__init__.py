"""The TaskManager: runs processor replicas on PipelineThreads, which are Spark tasks."""
