"""kazoo's Lock. Arguments: ADDRESS PATH SECONDS. EXTRA_LOCK_PATTERNS says whom it heeds beside its own kind."""

import os
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from lines import serve

address, path, seconds = sys.argv[1:]
client = KazooClient(hosts=address, timeout=float(seconds))
client.start()
patterns = os.environ.get("EXTRA_LOCK_PATTERNS", "").split()
lock = None


def acquire():
    global lock
    while True:
        # A new one each time: kazoo looks for the folder once for each object, and the servers remove one that is empty.
        lock = client.Lock(path, "kazoo", extra_lock_patterns=patterns)
        try:
            lock.acquire()
            return
        except NoNodeError:
            pass  # removed after kazoo looked; nothing is held


serve(acquire, lambda: lock.release())
