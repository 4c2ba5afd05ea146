"""How times are compared: within one run, in turn, by ratios. No number of seconds leaves this folder.

`make bench` runs these tests without the checks that tests/conftest.py puts around every function, and writes
the table that a page of the book shows.
"""

import json
import os
import statistics
import time
from pathlib import Path

import pytest
import torch

N_THREADS = 2
QUIET = 0.10  # share of the machine that other programs may take while a round runs
N_AGAIN = 10  # disturbed rounds that are thrown away before one is taken as it is


def pytest_addoption(parser):
    parser.addoption("--table", type=Path, help="the file to write the measured ratios to")


def pytest_configure(config):
    from plainformer.masks import causal

    if hasattr(causal, "shapes_are_checked"):
        raise pytest.UsageError("the checks around each function would be timed too: run `make bench`.")
    torch.set_num_threads(N_THREADS)
    config.rows = []


def pytest_sessionfinish(session, exitstatus):
    path, rows = session.config.getoption("--table"), session.config.rows
    if path is None or not rows or exitstatus not in (0, 1):  # a target that was missed is a result too
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = {"cores": cores, "threads": torch.get_num_threads(), "torch": torch.__version__.split("+")[0]}
    path.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1, ensure_ascii=False) + "\n", "utf-8")


@pytest.fixture(scope="session")
def record(request):
    """Adds a row to the table and prints it: what was measured, against what, in which unit, and the target."""

    def add(work: str, what: str, against: str, values: list[float], unit: str = "×", target: float | None = None):
        row = {"work": work, "what": what, "against": against, "value": round(statistics.median(values), 3)}
        row |= {"low": round(min(values), 3), "high": round(max(values), 3), "unit": unit, "target": target}
        request.config.rows.append(row)
        aim = "" if target is None else f"   (target {target})"
        print(f"\n{work}: {what} / {against}: {row['value']} {unit}, {row['low']} … {row['high']}{aim}", end="")
        return row["value"]

    return add


@pytest.fixture(scope="session")
def in_turn():
    """Runs each of several works once a round, and returns what each round gave: seconds, or what a work returns.

    A round in which other programs took more than a tenth of the machine is run again.
    """

    def run(works: dict, n_rounds: int = 5, n_warm: int = 1) -> list[dict[str, float]]:
        for work in [*works.values()] * n_warm:
            work()
        rounds, again = [], N_AGAIN
        while len(rounds) < n_rounds:
            before, seconds = _others(), {}
            started = time.perf_counter()
            for name, work in works.items():
                start = time.perf_counter()
                result = work()
                seconds[name] = result if isinstance(result, float) else time.perf_counter() - start
            share = (_others() - before) / (time.perf_counter() - started) / (os.cpu_count() or 1)
            if share < QUIET or not again:
                rounds.append(seconds)
            else:
                again -= 1
        return rounds

    return run


def _others() -> float:
    """Seconds of the processor that other programs have taken so far; 0 where the system does not say."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(int, file.readline().split()[1:])
    except OSError:
        return 0.0
    own = os.times()
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return busy - (own.user + own.system + own.children_user + own.children_system)
