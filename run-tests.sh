#!/usr/bin/env bash
# The one command for the tests. Without arguments: format and lint, then in three lanes side by side all that is left:
# types, layers, and pytest. With arguments: pytest with them.
set -euo pipefail

root=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd -P)
# shellcheck source=conf/bootstrap.sh
source "$root/conf/bootstrap.sh"

venv=$root/.venv-dev
find_java
ensure_venv "$venv" "$root/requirements-dev.lock" "about 780 MB"

cd "$root"
python=$venv/bin/python
export GX_ANALYTICS_ENABLED=False SPARK_LOCAL_IP=127.0.0.1 TZ=UTC PYTHONPATH=$root
export PYARROW_IGNORE_TIMEZONE=1 # pyspark.testing warns without it, and warnings are errors
export PYSPARK_PYTHON=$python PYSPARK_DRIVER_PYTHON=$python
unset SPARK_HOME SPARK_CONF_DIR

if [[ $# -gt 0 ]]; then exec "$python" -m pytest "$@"; fi

"$python" -m ruff format --check --quiet .
"$python" -m ruff check --quiet .

# prefixed NAME: each line of the input behind the name of its lane. Ctrl-C ends it last, with its lane.
prefixed() {
  local line
  trap '' INT TERM HUP
  while IFS= read -r line || [[ -n $line ]]; do printf '%-8s| %s\n' "$1" "$line"; done
}

lanes=() names=()
# lane NAME FUNCTION: starts a lane, in a group of processes of its own: those that a shell starts without job control
# ignore Ctrl-C.
lane() {
  set -m
  { "$2" 2>&1 | prefixed "$1"; } </dev/null &
  set +m
  lanes+=($!) names+=("$1")
}

# end SIGNAL: passes it on. After Ctrl-C pytest ends its brokers and sessions, and says where it was.
end() {
  trap '' INT TERM HUP
  for each in ${lanes[@]+"${lanes[@]}"}; do kill "-$1" -- "-$each" 2>/dev/null || true; done
  wait
  exit 130
}
trap 'end INT' INT
trap 'end TERM' TERM HUP

# Spark plans most of the time, on one core; tests of brokers and killed jobs wait for much of theirs.
# With these all lanes end at about the same time.
alone=()
for name in cookbook explain grown_topic redpanda report_job settled_anomalies sql_rows superset_datasets validate; do
  alone+=("tests/spark/test_$name.py")
done
spark() { "$python" -m pytest --long --durations=40 tests/spark "${alone[@]/#/--ignore=}"; }
live() { "$python" -m pytest --durations=40 tests/e2e; }
rest() {
  "$python" -m mypy
  "$venv/bin/lint-imports" --no-logo
  "$python" -m pytest --durations=40 tests/unit tests/property tests/browser "${alone[@]}"
}
lane spark spark
lane live live
lane rest rest

failed=()
for number in "${!lanes[@]}"; do wait "${lanes[number]}" || failed+=("${names[number]}"); done
[[ ${#failed[@]} -eq 0 ]] || fail "failed: ${failed[*]}"
