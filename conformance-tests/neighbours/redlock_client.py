"""redlock-py, with one server. Arguments: ADDRESS KEY SECONDS."""

import sys

from lines import serve
from redlock import Redlock

address, key, seconds = sys.argv[1:]
locks = Redlock([f"redis://{address}/"], retry_count=100_000, retry_delay=0.01)
held = None


def acquire():
    global held
    held = locks.lock(key, int(float(seconds) * 1000))
    assert held, "redlock-py has given up"


serve(acquire, lambda: locks.unlock(held))
