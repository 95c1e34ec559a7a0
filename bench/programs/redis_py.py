"""redis-py's own Lock, which asks again every 100 ms by default."""

import redis
from worker import serve


def connect(address):
    client = redis.Redis.from_url(address)

    def make(name):
        lock = client.lock(name, timeout=30)
        return lambda seconds: lock.acquire(blocking_timeout=seconds), lock.release

    return make


serve(connect)
