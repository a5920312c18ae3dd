#!/usr/bin/env bash
# The one command for the tests. Without arguments: format, lint, types, layers, then pytest. With arguments: pytest
# with them.
set -euo pipefail

root=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd -P)
# shellcheck source=conf/bootstrap.sh
source "$root/conf/bootstrap.sh"

venv=$root/.venv-dev
find_java
ensure_venv "$venv" "$root/requirements-dev.lock" "about 720 MB"

cd "$root"
python=$venv/bin/python
export GX_ANALYTICS_ENABLED=False SPARK_LOCAL_IP=127.0.0.1 TZ=UTC PYTHONPATH=$root
export PYARROW_IGNORE_TIMEZONE=1 # pyspark.testing warns without it, and warnings are errors
export PYSPARK_PYTHON=$python PYSPARK_DRIVER_PYTHON=$python
unset SPARK_HOME SPARK_CONF_DIR

if [[ $# -eq 0 ]]; then
  "$python" -m ruff format --check --quiet .
  "$python" -m ruff check --quiet .
  "$python" -m mypy
  "$venv/bin/lint-imports" --no-logo
fi
exec "$python" -m pytest "$@"
