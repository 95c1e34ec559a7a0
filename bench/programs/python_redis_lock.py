"""python-redis-lock, which waits with BLPOP."""

import math

import redis
import redis_lock
from worker import serve


def connect(address):
    client = redis.StrictRedis.from_url(address)

    def make(name):
        lock = redis_lock.Lock(client, name, expire=30)
        # It takes whole seconds.
        return lambda seconds: lock.acquire(timeout=math.ceil(seconds)), lock.release

    return make


serve(connect)
