#!/usr/bin/env bash
# The one front door: ./spark-submit.sh JOB [options]. Sets itself up on first use, then submits jobs/JOB.py to Spark.
set -euo pipefail

root=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd -P)
# shellcheck source=conf/bootstrap.sh
source "$root/conf/bootstrap.sh"

venv=$root/.venv
lock=$root/requirements.lock
# -I keeps modules in the user's working directory from shadowing ours (python -m would put it first on the path).
launch='import sys; sys.path.insert(0, sys.argv.pop(1)); from launch.submit import main; main(sys.argv[1:])'

# Help, version and completion need no Java; help does not wait for the setup either: docs/options.md has all of it.
help=no
case ${1:--h}:${2:-} in
  -h:* | --help:* | help:* | --version:* | completion:* | *:-h | *:--help) help=yes ;;
esac
if [[ $help == yes && ${1:-} != completion ]] && ! venv_is_ready "$venv" "$lock"; then
  if [[ ${1:-} == --version ]]; then exec sed -n 's/^version = "\(.*\)"$/groupledger \1/p' "$root/pyproject.toml"; fi
  part=${1:-}
  [[ ${2:-} == -h || ${2:-} == --help ]] || part=""
  page='/^## / { at = substr($0, 4) } /^(Written by|`tests|# |```)/ { next } { gsub(/\]\(#[a-z]*\)/, "]") }
    at == part { print; found = 1 } END { exit !found }'
  if awk -v part="$part" "$page" "$root/docs/options.md"; then exit $(($# > 0 ? 0 : 2)); fi
  say "unknown job $part; ./spark-submit.sh --help has them all"
  exit 2
fi

if [[ $help == no ]]; then find_java; fi
ensure_venv "$venv" "$lock" "about 670 MB"
exec "$venv/bin/python" -I -c "$launch" "$root" "$@"
