"""CPU seconds of importing the package and of its command's help: the least of five runs, in processes of their own.

python benchmarks/import_time.py            # prints, and exits with 1 beyond the limits
"""

from __future__ import annotations

import resource
import subprocess
import sys

#: What is run, and the CPU seconds that it may take; None where nothing is promised.
COMMANDS = {
    "python": ("pass", None),
    "import pyro_prme": ("import pyro_prme", 0.2),
    "prme --help": ("import sys; sys.argv = ['prme', '--help']; from pyro_prme.cli.entry import main; main()", 0.5),
    "prme fit --help": (
        "import sys; sys.argv = ['prme', 'fit', '--help']; from pyro_prme.cli.entry import main; main()",
        None,
    ),
    "import everything": ("import pyro_prme; [getattr(pyro_prme, name) for name in pyro_prme.__all__]", None),
}
_RUNS = 5


def cpu_seconds(code: str) -> float:
    """User and system time of a Python process that runs the code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Exit code 1 if something takes longer than it may."""
    late = False
    for name, (code, limit) in COMMANDS.items():
        seconds = min(cpu_seconds(code) for _ in range(_RUNS))
        over = limit is not None and seconds > limit
        late |= over
        print(f"{name:20} {seconds:6.2f} s{f'   limit {limit} s' if limit else ''}{'   too long' if over else ''}")
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
