#!/usr/bin/env bash
# The one front door: ./spark-submit.sh JOB [options]. Sets itself up on first use, then submits jobs/JOB.py to Spark.
set -euo pipefail

root=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd -P)
# shellcheck source=conf/bootstrap.sh
source "$root/conf/bootstrap.sh"

venv=$root/.venv
lock=$root/requirements.lock
# -I keeps modules in the user's working directory from shadowing ours (python -m would put it first on the path).
launch='import sys; sys.path.insert(0, sys.argv.pop(1)); from jobs.runtime.launch import main; main(sys.argv[1:])'

# Help and version need no Spark, so they do not wait for the setup.
help=no
case ${1:--h}:${2:-} in
  -h:* | --help:* | help:* | --version:* | *:-h | *:--help) help=yes ;;
esac
if [[ $help == yes ]] && ! venv_is_ready "$venv" "$lock"; then
  find_python
  try='import sys; sys.path.insert(0, sys.argv[1]); import jobs.runtime.options'
  if "$python" -I -c "$try" "$root" 2>/dev/null; then
    exec "$python" -I -B -c "$launch" "$root" "$@"
  fi
fi

if [[ $help == no ]]; then find_java; fi
ensure_venv "$venv" "$lock" "about 670 MB"
exec "$venv/bin/python" -I -c "$launch" "$root" "$@"
