# SPDX-License-Identifier: Apache-2.0
"""A cluster of Slurm's with one node, this machine, for the length of a test: a controller and a node's daemon of its
own, on loopback, with all their files in one directory. Root only: slurmd refuses others."""

import os
import pathlib
import shutil
import socket
import subprocess
import time

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "scancel", "squeue", "sinfo")
LIMIT_S = 60
# No authentication: whoever may connect to this machine's loopback during the test may give it work.
CONFIGURATION = """\
ClusterName=loop
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=1,sched_interval=2
KillWait=5
MpiDefault=pmix
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
"""


def why_not():
    """Why there can be none here; None: there can be one."""
    os.environ["PATH"] += ":/usr/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"there is no {missing[0]}: ./dev setup --slurm installs Slurm"
    return None if os.geteuid() == 0 else "slurmd runs as root only"


def free_ports(count):
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


class Cluster:
    def __init__(self, directory):
        self.dir = pathlib.Path(directory)
        self.environment = {
            **os.environ,
            "SLURM_CONF": f"{self.dir}/slurm.conf",
            "OMPI_MCA_btl_tcp_if_include": "lo",
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }
        for name in ("state", "spool"):
            (self.dir / name).mkdir()
        host = socket.gethostname().partition(".")[0]
        text = CONFIGURATION.format(dir=self.dir, host=host, ports=free_ports(2))
        (self.dir / "slurm.conf").write_text(text, encoding="utf-8")
        self.daemons = [self.start("slurmctld"), self.start("slurmd")]
        self.until(lambda: "idle" in self.run("sinfo", "-h", "-o", "%T", code=None), "the node")

    def start(self, name):
        with (self.dir / f"{name}.out").open("wb") as out:
            return subprocess.Popen([name, "-D"], stdout=out, stderr=out, env=self.environment)

    def close(self):
        self.run("scancel", "--user=root", "--signal=KILL", "--full", code=None)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def run(self, *command, code=0, **more):
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              env=self.environment, **more)
        if code is not None and done.returncode != code:
            raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def until(self, done, what):
        end = time.monotonic() + LIMIT_S
        while not done():
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not within {LIMIT_S} s\n{self.said()}")
            time.sleep(0.1)

    def said(self):
        return "".join(f"{path.name}:\n{path.read_text('utf-8', 'replace')[-1500:]}\n" for path in self.dir.glob("*.*"))

    def submit(self, name, tasks, command):
        """A job that may be put back into the queue. Its number, and where its output is."""
        out = self.dir / f"{name}.out"
        script = f"#!/bin/sh\necho \"start ${{SLURM_RESTART_COUNT:-0}}\"\nexec srun --overcommit {command}\n"
        said = self.run("sbatch", "--parsable", "--requeue", "--open-mode=append", "--overcommit", f"-n{tasks}",
                        f"--output={out}", input=script)
        return said.strip(), out

    def state(self, job):
        return self.run("squeue", "-h", "-o", "%T", "-j", job, code=None).strip()

    def requeue(self, job):
        """Puts a job back into the queue, from where it would come in two minutes."""
        self.run("scontrol", "requeue", job)
        self.until(lambda: self.state(job) == "PENDING", f"job {job} in the queue")
        self.start_now(job)

    def start_now(self, job):
        def started():
            self.run("scontrol", "update", f"JobId={job}", "StartTime=now", code=None)
            return self.state(job) != "PENDING"

        self.until(started, f"job {job} started again")
