"""Workers that are threads. The first line of the input is the server's address; `ready` is said; then each line is an order
`MODE NAME WORKERS MILLISECONDS HOLD-IN-MICROSECONDS` (see src/order.rs), answered by a line of JSON: for each worker the four moments of each grant."""

import json
import os
import sys
import threading
import time

now = time.monotonic_ns


def serve(connect):
    """`connect(address)` answers `make(name)`, which answers the functions `acquire(seconds)`, true if held, and `release()`."""
    make = connect(sys.stdin.readline().strip())
    print("ready", flush=True)
    for line in sys.stdin:
        mode, name, workers, millis, hold = line.split()
        end = now() + int(millis) * 1_000_000
        gates = [threading.Event(), threading.Event()]
        grants = [[] for _ in range(int(workers))]
        threads = [
            threading.Thread(target=work, args=(make, mode, name, worker, end, int(hold) / 1e6, gates, grants[worker]))
            for worker in range(int(workers))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps(grants, separators=(",", ":")), flush=True)
    # At once: the threads of a client must not keep the process alive.
    os._exit(0)


def work(make, mode, name, worker, end, hold, gates, grants):
    turns = mode == "turns"
    acquire, release = make(f"{name}-{worker}" if mode == "apart" else name)
    if turns and worker and not passes(gates[worker], end):
        return
    while (asked := now()) < end:
        if not acquire(max((end - asked) / 1e9, 0.001)):
            return
        acquired = now()
        if turns:
            gates[1 - worker].set()
        if hold:
            time.sleep(hold)
        releasing = now()
        release()
        grants.append((asked, acquired, releasing, now()))
        if turns and not passes(gates[worker], end):
            return


def passes(gate, end):
    if not gate.wait(max((end - now()) / 1e9, 0)):
        return False
    gate.clear()
    return True
