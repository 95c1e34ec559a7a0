"""The lock service of the etcd server itself, through its JSON gateway. Arguments: ADDRESS NAME SECONDS."""

import base64
import json
import sys
import urllib.request

from lines import serve

address, name, seconds = sys.argv[1:]
lease = key = None


def call(method, **arguments):
    request = urllib.request.Request(f"http://{address}/v3/{method}", json.dumps(arguments).encode())
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def acquire():
    global lease, key
    lease = call("lease/grant", TTL=seconds)["ID"]
    key = call("lock/lock", name=base64.b64encode(name.encode()).decode(), lease=lease)["key"]


def release():
    call("lock/unlock", key=key)
    call("lease/revoke", ID=lease)


serve(acquire, release)
