#!/usr/bin/env bash
# Runs every test. On Debian and Ubuntu, as root or with sudo, installs the system packages that are missing first.
set -euo pipefail
cd "$(dirname "$0")"

step() {
    current=$1
    shift
    printf '\n== %s\n' "$current"
    "$@"
}

# The last line says how it ended.
current='start'
finish() {
    status=$?
    if [ "$status" -eq 0 ]; then
        echo 'test.sh: all tests passed'
    else
        echo "test.sh: FAILED in: $current" >&2
    fi
}
trap finish EXIT

# Two MPI libraries, what binding to them needs, `ip` and `tc` for slow links, and `pgrep`.
packages='openmpi-bin libopenmpi-dev mpich libmpich-dev libclang-dev iproute2 procps'

install_missing() {
    if ! command -v apt-get > /dev/null; then
        echo "no apt-get here: needed are what Debian calls $packages"
        return
    fi
    missing=''
    for package in $packages; do
        if [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2> /dev/null)" != installed ]; then
            missing="$missing $package"
        fi
    done
    if [ -z "$missing" ]; then
        echo 'nothing is missing'
        return
    fi
    echo "installing$missing"
    as_root=''
    if [ "$(id -u)" -ne 0 ]; then
        as_root='sudo'
    fi
    $as_root apt-get update --quiet
    # shellcheck disable=SC2086 # one word a package
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends $missing
}

# Several ranks on few cores, as root in containers: Open MPI wants to be told that this is meant.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

exchange_everything() {
    cargo build --release --package lockstep-comm --features mpi --example mpi_exchange
    "$LOCKSTEP_MPIRUN" -n 3 "$CARGO_TARGET_DIR/release/examples/mpi_exchange"
}

step 'system packages' install_missing
step 'checks and tests without MPI' cargo xtask validate
step 'models of the lock-free protocols' cargo xtask loom

# Each MPI library has a build directory of its own: the bindings are to one of them.
target=${CARGO_TARGET_DIR:-target}
for library in openmpi mpich; do
    export MPICC="mpicc.$library" LOCKSTEP_MPIRUN="mpirun.$library" CARGO_TARGET_DIR="$target/$library"
    step "every exchange on $library" exchange_everything
    step "mpirun tests on $library" cargo test --release --features mpi,faults --test mpi --test robust
    # Its hosts are network namespaces, which only root can make, and its launcher's options are Open MPI's.
    if [ "$library" = openmpi ] && [ "$(id -u)" -eq 0 ]; then
        step 'two hosts and a slow link' cargo test --release --features mpi,faults --test network
    fi
done
