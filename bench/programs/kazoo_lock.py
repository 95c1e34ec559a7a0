"""kazoo's Lock."""

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from worker import serve


def connect(address):
    hosts = address.removeprefix("zk://").split("/")[0]
    client = KazooClient(hosts=hosts, timeout=30)
    client.start()

    def make(name):
        lock = client.Lock(f"/bench-kazoo/{name}", "bench")

        def acquire(seconds):
            try:
                return lock.acquire(timeout=seconds)
            except LockTimeout:
                return False

        return acquire, lock.release

    return make


serve(connect)
