#!/usr/bin/env bash
# `etcdctl lock`, one process for each acquisition. Arguments: ADDRESS PREFIX SECONDS. The line protocol is that of lines.py.
set -euo pipefail
export ETCDCTL_API=3
command -v etcdctl >/dev/null
command -v setpriv >/dev/null
echo ready
while read -r order; do
  if [ "$order" = acquire ]; then
    # It dies with this script: bash would leave it behind, and it would go on holding.
    coproc LOCK { exec setpriv --pdeathsig KILL etcdctl --endpoints "http://$1" lock --ttl "$3" "$2"; }
    pid=$LOCK_PID
    read -r _ <&"${LOCK[0]}" # the key, once it is held
    echo held
  else
    kill "$pid"
    wait "$pid" || true
    echo released
  fi
done
