"""The machine that a measurement ran on, and whether it was quiet meanwhile."""

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass

# Other processes' CPU time during a measurement, in percent of one core, from which on its figures
# are not worth quoting. The kernel counts in ticks of 10 ms: very short runs are let a few of them.
DISTURBED_PERCENT = 4.0
SLACK_SECONDS = 0.05


def describe():
    """CPU model, cores that may be used, memory in GiB."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        first = file.read().split("\n\n", 1)[0]  # the first core's
    fields = (line.partition(":") for line in first.splitlines())
    facts = {name.strip(): value.strip() for name, _, value in fields}
    model = facts.get("model name", "unknown CPU")
    if "cpu family" in facts:  # a guest is often told a name that says little
        model += f" (family {facts['cpu family']}, model {facts['model']})"
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
    }


def busy_seconds():
    """CPU time of all processes since boot; what the host took of this guest counts too."""
    with open("/proc/stat", encoding="utf-8") as file:
        fields = [int(x) for x in file.readline().split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass
class Run:
    """A finished process and what others did meanwhile."""

    status: int
    stdout: str
    stderr: str
    wall_seconds: float
    foreign_seconds: float
    peak_rss_mib: float

    @property
    def foreign_percent(self):
        return 100 * self.foreign_seconds / self.wall_seconds

    @property
    def disturbed(self):
        allowed = max(SLACK_SECONDS, DISTURBED_PERCENT / 100 * self.wall_seconds)
        return self.foreign_seconds > allowed


def wait_until_quiet(seconds):
    """Waits until a second passes in which the machine idles; at most `seconds`. True if it did."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = busy_seconds()
        time.sleep(1)
        if busy_seconds() - before < SLACK_SECONDS:
            return True
    return False


def run(command, environment):
    """Runs a command to its end. CPU time that is neither its own nor its children's is others'."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        busy, begin = busy_seconds(), time.monotonic()
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=out, stderr=err
        )
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:  # an interrupt must not leave it running
            process.kill()
            raise
        wall = time.monotonic() - begin
        foreign = busy_seconds() - busy - usage.ru_utime - usage.ru_stime
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return Run(
            status=process.returncode,
            stdout=out.read(),
            stderr=err.read(),
            wall_seconds=wall,
            foreign_seconds=max(0.0, foreign),
            peak_rss_mib=usage.ru_maxrss / 1024,
        )
