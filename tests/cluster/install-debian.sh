#!/bin/sh
# Install the Debian packages the tests need. Usage: install-debian.sh [GROUP ...]
#   cluster   Slurm's controller, node daemon and clients, and munge (the default)
#   database  slurmdbd and the MariaDB server that stores its records
#   rest      slurmrestd and the JWT plugin it authenticates with
#   examples  ncbi-blast+ and montage, the programs of the example workflows
#   md        GROMACS, whose runs go on from checkpoints
#   mpi       Open MPI, and what compiles a program for it
#   browser   Chromium, in which the dashboard is tested
#   shells    zsh and fish, in which completion is tested
#   trees     mmdebstrap, which makes the trees of other releases (tests/cluster/tree)
#   all       every group above
# Idempotent: what is installed already is left as it is, and the package lists are refreshed only when they do not
# offer a missing package. No service is left running by the installation.
set -eu

usage() {
    sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

[ $# -gt 0 ] || set -- cluster
packages=
for group in "$@"; do
    case $group in
        cluster) packages="$packages slurmctld slurmd slurm-client munge" ;;
        database) packages="$packages slurmdbd mariadb-server" ;;
        rest) packages="$packages slurmrestd slurm-wlm-jwt-plugin" ;;
        examples) packages="$packages ncbi-blast+ montage" ;;
        md) packages="$packages gromacs" ;;
        mpi) packages="$packages openmpi-bin libopenmpi-dev gcc libc6-dev" ;;
        browser) packages="$packages chromium" ;;
        shells) packages="$packages zsh fish" ;;
        trees) packages="$packages mmdebstrap" ;;
        all) packages="$packages slurmctld slurmd slurm-client munge slurmdbd mariadb-server slurmrestd"
             packages="$packages slurm-wlm-jwt-plugin ncbi-blast+ montage openmpi-bin libopenmpi-dev gcc libc6-dev"
             packages="$packages chromium zsh fish mmdebstrap gromacs" ;;
        *) usage ;;
    esac
done

missing=
for package in $packages; do
    state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$state" = "install ok installed" ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
    echo "already installed:$packages"
    exit 0
fi

if [ "$(id -u)" -ne 0 ]; then
    echo "install-debian.sh: not root; as root run: apt-get install --no-install-recommends$missing" >&2
    exit 1
fi

export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # a list of package names, split on purpose
if ! apt-get install --simulate --no-install-recommends $missing >/dev/null 2>&1; then
    apt-get update -qq
fi
# Packages that bring a daemon start it through invoke-rc.d, which obeys policy-rc.d: 101 means "do not start".
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing
echo "installed:$missing"
