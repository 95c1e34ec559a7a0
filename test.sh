#!/usr/bin/env bash
# Runs every test, on real servers that the tests start themselves on free ports.
# Installs what is missing where it may (root, Debian or Ubuntu), else says exactly what to install.
#
#   ./test.sh           everything that must pass before a change lands
#   ./test.sh quick     formatting, lints and the tests that need no server
#   ./test.sh newer     the suites of Redis and MySQL on Valkey and MySQL, from a folder with Debian unstable in it (as root)
#   ./test.sh soak      the long runs: two minutes of torture on each backend, the suite behind sentinels and in a Redis Cluster, 200 rounds of three groups on Redis, load in full
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
# The driver of etcd is built with protoc and what it includes.
need protoc protobuf-compiler
[ -e /usr/include/google/protobuf/descriptor.proto ] || missing+=(libprotobuf-dev)
[ "$mode" != newer ] || need debootstrap debootstrap
if [ "$mode" != quick ]; then
  need redis-server redis-server
  need mariadbd mariadb-server
  need java default-jre-headless
  [ -e /usr/share/java/zookeeper.jar ] || missing+=(zookeeper)
  need etcd etcd-server
  need etcdctl etcd-client
  # It makes the keys with which a server of etcd signs logins.
  need openssl openssl
  # The other clients that ours must exclude with (docs/neighbours.md).
  need javac default-jdk-headless
  need go golang-go
  for file in /usr/share/java/curator-recipes.jar:libcurator-recipes-java \
    /usr/share/gocode/src/go.etcd.io/etcd/clientv3:golang-etcd-server-dev /usr/lib/python3/dist-packages/redis:python3-redis \
    /usr/lib/python3/dist-packages/kazoo:python3-kazoo /usr/lib/python3/dist-packages/pip:python3-pip; do
    [ -e "${file%%:*}" ] || missing+=("${file#*:}")
  done
fi
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
  for feature in "" sqlite redis mysql zk etcd "sqlite cli" "redis cli" "mysql cli" "zk cli" "etcd cli" metrics; do
    cargo check --quiet -p distlock --no-default-features --features "$feature"
  done
}

stranger() {
  say "a backend outside the workspace"
  cargo fmt --manifest-path examples/folder-lock/Cargo.toml --check
  cargo clippy --quiet --manifest-path examples/folder-lock/Cargo.toml --target-dir target --all-targets -- -D warnings
  cargo test --quiet --manifest-path examples/folder-lock/Cargo.toml --target-dir target
}

tests() {
  say "tests"
  # Each suite adds its column to the table of rules and backends.
  export CONFORMANCE_REPORT="$PWD/conformance-report.md"
  rm -f "$CONFORMANCE_REPORT"
  cargo test --workspace --all-features --no-fail-fast
  say "rules and backends (conformance-report.md)"
  cat "$CONFORMANCE_REPORT"
  # The table that readers see is the one that was just proved.
  cmp "$CONFORMANCE_REPORT" docs/rules.md || { echo "test.sh: run cp conformance-report.md docs/rules.md" >&2; exit 1; }
}

soak() {
  say "guards dropped as the last act of main, on Redis"
  cargo run --release --quiet -p conformance-tests --bin siege -- last-act --rounds 200
  local backend
  for backend in memory sqlite redis mysql zk etcd; do
    say "two minutes of torture: $backend"
    cargo run --release --quiet -p conformance-tests --features etcd --bin torture -- "$backend:" --minutes 2
  done
  for backend in zk etcd; do
    say "two minutes of torture: three members of $backend"
    cargo run --release --quiet -p conformance-tests --features etcd --bin torture -- "$backend:" --members 3 --minutes 2
  done
  local form
  for form in sentinel cluster; do
    say "the suite on a Redis $form"
    CONFORMANCE_REDIS=$form cargo test --quiet -p conformance-tests --test redis
  done
  say "load in full: 10,000 held names and 1,000 waiters, 100 processes, 100,000 cycles"
  LOAD=full cargo test --release --quiet -p conformance-tests --all-features --test load -- --nocapture --test-threads 1
  say "200 rounds of exclusion, cancellation and loss on Redis"
  local skip=() group round
  for group in ttl owner fencing unclear waiting residue names errors; do skip+=(--skip "$group::"); done
  cargo test --quiet -p conformance-tests --test redis -- "${skip[@]}" --test-threads 12
  for round in $(seq 2 200); do
    cargo test --quiet -p conformance-tests --test redis -- "${skip[@]}" --test-threads 12 >/dev/null ||
      { echo "test.sh: round $round failed" >&2; exit 1; }
  done
}

newer() {
  export CONFORMANCE_ROOT="${CONFORMANCE_ROOT:-$PWD/target/debian}"
  if [ ! -x "$CONFORMANCE_ROOT/usr/sbin/mysqld" ]; then
    say "Debian unstable in $CONFORMANCE_ROOT"
    debootstrap --variant=minbase --include=mysql-server-core,valkey-server sid "$CONFORMANCE_ROOT" >/dev/null
  fi
  chroot "$CONFORMANCE_ROOT" mysqld --version
  chroot "$CONFORMANCE_ROOT" valkey-server --version
  say "the suites"
  cargo test --no-fail-fast -p conformance-tests --test mysql --test redis
  say "many tasks and processes on MySQL, for a minute"
  DISTLOCK_CROWD_SECONDS=60 cargo test --no-fail-fast -p lock-mysql -- --nocapture
}

case $mode in
  newer) newer ;;
  all) lints; features; stranger; tests ;;
  quick) lints; cargo test -p lock-core -p lock-sqlite --all-features ;;
  soak) soak ;;
  *) echo "test.sh: unknown mode '$mode'; one of: all, quick, newer, soak" >&2; exit 64 ;;
esac
say "passed"
