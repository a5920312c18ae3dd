#!/usr/bin/env bash
# Measures the product on a generated topic: benchmarks/run.sh [ingest_decode | engine | growth | targets | others |
# shapes | scale_out | soak | lives | model | truth | differential] [--help]. Makes the tests' venv.
set -euo pipefail

root=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd -P)
# shellcheck source=../conf/bootstrap.sh
source "$root/conf/bootstrap.sh"

venv=$root/.venv-dev
find_java
ensure_venv "$venv" "$root/requirements-dev.lock" "about 780 MB"

unset SPARK_HOME SPARK_CONF_DIR
export PYTHONPATH=$root
export SPARK_LOCAL_IP=127.0.0.1
benchmark=ingest_decode
if [[ $# -gt 0 && $1 != -* ]]; then
  benchmark=$1
  shift
fi
exec "$venv/bin/python" -m "benchmarks.$benchmark" "$@"
