#!/usr/bin/env bash
# Measures ingest and decode on a generated topic: benchmarks/run.sh [--records 5000000] [--json]. Needs the tests' venv.
set -euo pipefail

root=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd -P)
# shellcheck source=../conf/bootstrap.sh
source "$root/conf/bootstrap.sh"

venv=$root/.venv-dev
find_java
ensure_venv "$venv" "$root/requirements-dev.lock" "about 720 MB"

unset SPARK_HOME SPARK_CONF_DIR
export PYTHONPATH=$root
exec "$venv/bin/python" -m benchmarks.ingest_decode "$@"
