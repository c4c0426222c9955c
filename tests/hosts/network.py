"""Hosts on this machine: each has network, name and resolver of its own, and shares the disk.

A host is a set of namespaces of Linux that a keeper holds: a process which ends when the process
that made it does. A switch, a bridge in a namespace of its own, connects them. Namespaces have no
names in the file system, so they and their devices are gone with the last process in them. Guard
the process that makes a network (`tests.leftovers.Guard`): if it is killed, nothing is left then.

A host that is unplugged, and a direction that is blocked, are silent: no packet comes, no
connection is reset, and no device reports that its carrier is lost.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from tests.hosts import relay
from tests.hosts.relay import Harm
from tests.hosts.resolver import Resolver

_TOOLS = ("unshare", "nsenter", "ip", "tc", "mount", "hostname", "env")
_TIMEOUT_S = 30
_BRIDGE, _DEVICE = "br0", "eth0"
_NOBODY = "02:00:00:00:00:01"
"""An address of no device: the switch shows a frame for it to all hosts, and none takes it."""
_BUCKET_BYTES = 32_768
_QUEUE_MS = 400
_CLONE_NEWNET = 0x40000000
_KEEP = """
set -e
hostname "$1"
mount --bind "$2" /etc/hosts
mount --bind "$3" /etc/resolv.conf
ip link set lo up
echo ready
exec cat
"""
_ADDRESSES = "10.77.0.{}"
_DOMAIN = "hosts.test"


class NoHostsError(Exception):
    """This machine cannot have several hosts; the message gives the reason."""


def require_hosts() -> None:
    """Raise `NoHostsError` unless this process may make hosts."""
    if sys.platform != "linux":
        raise NoHostsError("several hosts need namespaces of Linux")
    if os.geteuid() != 0:
        raise NoHostsError("only root may make the namespaces of hosts")
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise NoHostsError(f"there is no {', '.join(missing)} (util-linux, iproute2)")
    _run("unshare", "--net", "--mount", "--uts", "true")


class _Helper:
    """A process that says when it is ready, and ends with its input, and so with this process."""

    def __init__(self, words: Sequence[str]) -> None:
        """Start it, and wait until it is ready. Raises `NoHostsError` if it ends before."""
        pipe = subprocess.PIPE
        # In a session of its own: Ctrl-C is for this process, which ends its helpers last.
        self._process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            _, problem = self._process.communicate()
            raise NoHostsError(f"{words[0]}: {problem.decode(errors='replace').strip()}")

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=_TIMEOUT_S)


class Host:
    """One host. Processes get onto it by `within` in front of their commands."""

    def __init__(self, name: str, number: int, folder: Path) -> None:
        """Start the keeper of its namespaces; the host is not on a network yet."""
        self.name = f"{name}.{_DOMAIN}"
        self._folder = folder
        self.address = _ADDRESSES.format(number)
        self.port = f"port{number}"
        """The name of the switch's device for this host."""
        hosts, resolv_conf = folder / f"{name}.hosts", folder / f"{name}.resolv.conf"
        hosts.write_text("127.0.0.1 localhost\n")
        resolv_conf.write_text(f"nameserver {_ADDRESSES.format(1)}\noptions timeout:3 attempts:1\n")
        words = ["unshare", "--net", "--mount", "--uts", "--propagation", "private"]
        words += ["sh", "-c", _KEEP, "keeper", self.name, str(hosts), str(resolv_conf)]
        self._keeper = _Helper(words)

    @property
    def within(self) -> tuple[str, ...]:
        """The command, with the path of its program, that becomes the one after it on this host."""
        nsenter = shutil.which("nsenter") or "nsenter"
        words = (nsenter, "--target", str(self.pid), "--net", "--mount", "--uts", "--")
        # A process that enters another set of mounts is in the folder `/` there.
        return (*words, "env", f"--chdir={self._folder}")

    @property
    def pid(self) -> int:
        """The process id of the keeper."""
        return self._keeper.pid

    def run(self, *command: str) -> str:
        """Run a command on this host; return what it prints. Raises `NoHostsError` if it fails."""
        return _run(*self.within, *command)

    def close(self) -> None:
        """End the keeper. The host is gone once no process is on it."""
        self._keeper.close()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Give this thread, and what it starts, the network of this host.

        Names are still resolved as on the machine: use addresses.
        """
        with open("/proc/thread-self/ns/net") as before, open(f"/proc/{self.pid}/ns/net") as wanted:
            _set_network(wanted.fileno())
            try:
                yield
            finally:
                _set_network(before.fileno())


class Network:
    """Hosts that reach each other, and what can be wrong between them.

    The first host is the observer: it has the resolver of all, and nothing happens to it.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        """Remember the names; `open` makes the hosts, which have files in `folder`."""
        self._folder = folder
        self._names = ("observer", *names)
        self._number = len(self._names)
        self.hosts: Mapping[str, Host] = {}
        self.resolver: Resolver

    @contextmanager
    def open(self) -> Iterator[Network]:
        """Make everything, enter the observer with this thread, and remove everything at the end.

        Raises `NoHostsError` if this machine does not allow that.
        """
        require_hosts()
        self._folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            self._switch = stack.enter_context(closing(Host("switch", 0, self._folder)))
            self._switch.run("ip", "link", "add", _BRIDGE, "type", "bridge")
            self._switch.run("ip", "link", "set", _BRIDGE, "up")
            hosts = {}
            for number, name in enumerate(self._names, 1):
                host = stack.enter_context(closing(Host(name, number, self._folder)))
                self._connect(host)
                hosts[name] = host
            self.hosts = hosts
            stack.enter_context(self.observer.entered())
            self.resolver = stack.enter_context(closing(Resolver(self.observer.address)))
            for host in hosts.values():
                self.resolver.addresses[host.name] = host.address
            yield self

    @property
    def observer(self) -> Host:
        """The host from which tests look at the others."""
        return self.hosts["observer"]

    @contextmanager
    def silent(self, *hosts: Host) -> Iterator[None]:
        """Let no packet come to these hosts or from them."""
        for host in hosts:
            self._switch.run("ip", "link", "set", host.port, "nomaster")
        try:
            yield
        finally:
            for host in hosts:
                self._switch.run("ip", "link", "set", host.port, "master", _BRIDGE)

    @contextmanager
    def blocked(self, *ways: tuple[Host, Host]) -> Iterator[None]:
        """Lose the packets from the first host of each pair to the second one."""
        for sender, receiver in ways:
            where = (receiver.address, "lladdr", _NOBODY, "nud", "permanent", "dev", _DEVICE)
            sender.run("ip", "neigh", "replace", *where)
        try:
            yield
        finally:
            for sender, receiver in ways:
                sender.run("ip", "neigh", "del", receiver.address, "dev", _DEVICE)

    @contextmanager
    def narrow(self, host: Host, kbit_per_s: int) -> Iterator[None]:
        """Give a host this bandwidth in each direction."""
        limits = ("rate", f"{kbit_per_s}kbit", "burst", str(_BUCKET_BYTES))
        ends = ((host, _DEVICE), (self._switch, host.port))
        for end, device in ends:
            where = ("dev", device, "root")
            end.run("tc", "qdisc", "add", *where, "tbf", *limits, "latency", f"{_QUEUE_MS}ms")
        try:
            yield
        finally:
            for end, device in ends:
                end.run("tc", "qdisc", "del", "dev", device, "root")

    @contextmanager
    def harmed(self, host: Host, harm: Harm, seed: float) -> Iterator[None]:
        """Lose, delay and repeat frames of a host in both directions."""
        inner, outer = f"in-{host.port}", f"out-{host.port}"
        self._switch.run("ip", "link", "add", inner, "type", "veth", "peer", "name", outer)
        self._switch.run("ip", "link", "set", outer, "master", _BRIDGE, "up")
        self._switch.run("ip", "link", "set", inner, "up")
        words = [sys.executable, "-I", relay.__file__, host.port, inner]
        words += map(str, (harm.loss, harm.delay_ms, harm.jitter_ms, harm.duplicates, seed))
        try:
            with self.silent(host), closing(_Helper([*self._switch.within, *words])):
                yield
        finally:
            self._switch.run("ip", "link", "del", inner)

    def move(self, host: Host) -> None:
        """Give a host another address, under its name; connections to the former one are silent."""
        self._number += 1
        former, host.address = host.address, _ADDRESSES.format(self._number)
        host.run("ip", "addr", "del", f"{former}/24", "dev", _DEVICE)
        host.run("ip", "addr", "add", f"{host.address}/24", "dev", _DEVICE)
        self.resolver.addresses[host.name] = host.address

    def _connect(self, host: Host) -> None:
        peer = ("peer", "name", _DEVICE, "netns", str(host.pid))
        self._switch.run("ip", "link", "add", host.port, "type", "veth", *peer)
        self._switch.run("ip", "link", "set", host.port, "master", _BRIDGE, "up")
        host.run("ip", "addr", "add", f"{host.address}/24", "dev", _DEVICE)
        # A loss hits one packet then, not a burst that is cut into packets only when it arrives.
        host.run("ip", "link", "set", _DEVICE, "gso_max_segs", "1", "up")


def _set_network(descriptor: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, _CLONE_NEWNET) != 0:
        raise NoHostsError(f"a network cannot be entered: {os.strerror(ctypes.get_errno())}")


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoHostsError(f"{command[0]} does not work: {error}") from error
    if done.returncode != 0:
        raise NoHostsError(f"{' '.join(command)} is refused: {done.stderr.strip()}")
    return done.stdout
