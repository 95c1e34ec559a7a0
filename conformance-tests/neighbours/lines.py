"""The line protocol of a neighbour: it says `ready`, then answers `acquire` with `held` and `release` with `released`."""

import os
import sys


def serve(acquire, release):
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "acquire\n":
            acquire()
            print("held", flush=True)
        else:
            release()
            print("released", flush=True)
    # At once, and without a release: the threads of a client must not keep the process alive.
    os._exit(0)
