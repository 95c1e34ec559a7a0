"""redis-py's own Lock. Arguments: ADDRESS KEY SECONDS."""

import sys

import redis
from lines import serve

address, key, seconds = sys.argv[1:]
client = redis.Redis.from_url(f"redis://{address}/")
lock = client.lock(key, timeout=float(seconds), sleep=0.01)
serve(lock.acquire, lock.release)
