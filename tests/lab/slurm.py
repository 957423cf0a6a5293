"""Slurm itself, on this machine alone: a controller and three nodes of 16 CPUs and 4 GPUs, as its configuration claims."""

import os
import secrets
import shutil
import socket
import subprocess
from contextlib import contextmanager, suppress

import psutil

from tests.lab.simulated import wait_for

DAEMONS = ("munged", "slurmctld", "slurmd")

CONFIGURATION = """
ClusterName=tested
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={place}/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
KillWait=5
GresTypes=gpu
NodeName=127.0.0.[1-3] NodeAddr=127.0.0.1 CPUs=16 Gres=gpu:4 Port=[{first}-{last}] State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
"""Nodes are called by addresses of this machine, so that their names can be resolved."""


def lacking():
    """What is not here of what a cluster needs; nothing if all is."""
    missing = [name for name in (*DAEMONS, "sbatch", "srun") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} are not here: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "its daemons need root"


@contextmanager
def slurm(place):
    """Slurm within the block, and what the environment of its commands needs. At the end no daemon may be left."""
    ctld, first = free_ports(1), free_ports(3)
    (place / "slurm.conf").write_text(
        CONFIGURATION.format(place=place, ctld=ctld, first=first, last=first + 2)
    )
    (place / "gres.conf").write_text(f"Name=gpu File={place}/gpu[0-3]\n")
    for number in range(4):
        (place / f"gpu{number}").touch()
    (place / "state").mkdir()
    key = place / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    place.chmod(0o711)
    environment = os.environ | {"SLURM_CONF": str(place / "slurm.conf")}
    munged = ["munged", "--force", f"--key-file={key}", f"--socket={place}/munge.socket"]
    munged += [f"--{one}-file={place}/munged.{one}" for one in ("pid", "log", "seed")]
    daemons = [munged, ["slurmctld"], *(["slurmd", "-N", f"127.0.0.{number}"] for number in (1, 2, 3))]
    try:
        for line in daemons:
            subprocess.run(line, env=environment, check=True, capture_output=True)
        idle, jobs = ["sinfo", "--noheader", "--states=idle", "--format=%D"], ["squeue", "--noheader"]
        wait_for(
            lambda: (
                subprocess.run(idle, env=environment, capture_output=True, text=True, check=False).stdout
                == "3\n"
            ),
            60,
            lambda: [path.read_text()[-1000:] for path in place.glob("*.log")],
        )
        try:
            yield environment
        finally:
            subprocess.run(["scancel", "--partition=all"], env=environment, check=True)
            wait_for(lambda: not subprocess.check_output(jobs, env=environment), 60)
    finally:
        pids = [int(path.read_text()) for path in place.glob("*.pid")]
        for pid in pids:
            with suppress(psutil.Error):
                psutil.Process(pid).terminate()
    wait_for(lambda: not any(map(psutil.pid_exists, pids)), 60)


def free_ports(count):
    """The first of so many ports in a row that nobody has."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = probe.getsockname()[1]
        try:
            for port in range(first, first + count):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
