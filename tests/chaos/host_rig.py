"""A real cluster on several hosts: a rig whose parts only share a network, and the disk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

from kafka_pipeline.admin.daemons import Daemon
from tests.chaos.rig import FIRST, TASK_MANAGERS, Rig, servers_setting
from tests.hosts.brokers import HostBrokers
from tests.hosts.network import Network

HOST_BROKERS = 3
_JOB_MANAGERS = 2


class HostRig(Rig):
    """Three brokers, a JobManager, three TaskManagers and the observer, each on its own host.

    A second host is there for the JobManager: each one that is started is on the other host than
    the one before. The writer, the reader and commands are on the observer.
    """

    cluster: HostBrokers

    def _make_cluster(self) -> HostBrokers:
        brokers = [f"broker-{number}" for number in range(1, HOST_BROKERS + 1)]
        job_managers = [f"jobmanager-{number}" for number in range(1, _JOB_MANAGERS + 1)]
        workers = [f"worker-{tm_id}" for tm_id in range(TASK_MANAGERS)]
        network = Network(self.folder / "network", [*brokers, *job_managers, *workers])
        self.network = self._stack.enter_context(network.open())
        hosts = network.hosts
        broker_hosts = [hosts[name] for name in brokers]
        self.workers = {tm_id: hosts[name] for tm_id, name in enumerate(workers)}
        self._job_manager_hosts = cycle([hosts[name] for name in job_managers])
        return HostBrokers(self.folder / "kafka", broker_hosts, self.broker_settings)

    def _write_config_files(self) -> dict[int, Path]:
        kafka = servers_setting(self.cluster.named_servers)
        self._config_of_job_manager = self.engine.write_config("config_on_hosts", kafka=kafka)
        files = dict.fromkeys(range(TASK_MANAGERS), self._config_of_job_manager)
        state = self.folder / "state_of_0"
        files[FIRST] = self.engine.write_config("config_0", kafka=kafka, state_dir=state)
        return files

    def start_job_manager(self, *, with_pipeline: bool = True) -> Daemon:
        """Start a JobManager on the host that does not have the latest one."""
        self.job_manager_host = next(self._job_manager_hosts)
        return self.engine.start_job_manager(
            self._environment("jm"),
            with_pipeline=with_pipeline,
            config_file=self._config_of_job_manager,
            within=self.job_manager_host.within,
        )

    def within(self, tm_id: int) -> Sequence[str]:
        """Return the command that gets a TaskManager onto its host."""
        return self.workers[tm_id].within


def on_hosts(rig: Rig) -> HostRig:
    """Return the rig as one on hosts, for faults that are played there only."""
    assert isinstance(rig, HostRig), "the campaign plays this fault on hosts only"
    return rig
