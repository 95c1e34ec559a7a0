#!/usr/bin/env bash
# Runs every test, on real servers that the tests start themselves on free ports.
# Installs what is missing where it may (root, Debian or Ubuntu), else says exactly what to install.
#
#   ./test.sh           everything that must pass before a change lands
#   ./test.sh quick     formatting, lints and the tests that need no server
#   ./test.sh soak      the long runs: 200 rounds of three groups on Redis, two minutes of kills on one name
set -euo pipefail
cd "$(dirname "$0")"
mode=${1:-all}
started=$SECONDS

say() { printf '\n== %s (%d s)\n' "$*" $((SECONDS - started)); }

need() { # command, Debian package
  command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}

missing=()
need cc build-essential
need redis-server redis-server
need etcd etcd-server
need etcdctl etcd-client
need protoc protobuf-compiler
# What protoc includes; the driver of etcd is built with it.
[ -e /usr/include/google/protobuf/descriptor.proto ] || missing+=(libprotobuf-dev)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "test.sh: not installed: ${missing[*]}" >&2
    echo "test.sh: on Debian or Ubuntu, as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi
command -v cargo >/dev/null 2>&1 || { echo "test.sh: cargo is not installed; see https://rustup.rs" >&2; exit 1; }

export RUSTDOCFLAGS="-D warnings"

lints() {
  say "formatting"
  cargo fmt --all --check
  say "clippy"
  cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings
  say "documentation"
  cargo doc --quiet --workspace --no-deps --all-features
}

features() {
  say "each feature of distlock alone"
  for feature in "" sqlite redis etcd "sqlite cli" "redis cli" "etcd cli" metrics; do
    cargo check --quiet -p distlock --no-default-features --features "$feature"
  done
}

tests() {
  say "tests"
  cargo test --workspace --all-features
}

soak() {
  say "200 rounds of exclusion, cancellation and loss on Redis"
  cargo run --release -p conformance-tests -- --repeat 200 --groups mutual_exclusion,cancellation,loss redis:
}

case $mode in
  all) lints; features; tests ;;
  quick) lints; cargo test -p lock-core -p lock-sqlite --all-features ;;
  soak) soak ;;
  *) echo "test.sh: unknown mode '$mode'; one of: all, quick, soak" >&2; exit 64 ;;
esac
say "passed"
