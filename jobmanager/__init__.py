"""The JobManager: balances processor replicas over TaskManagers and watches their heartbeats."""
