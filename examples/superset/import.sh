#!/usr/bin/env bash
# Imports the dashboard into the Superset whose command is on the PATH, replacing what was imported before.
#
#   examples/superset/import.sh [URI [TIME_RANGE]]
#
# URI: where ./spark-submit.sh sql --serve listens, as SQLAlchemy has it; by default hive://127.0.0.1:10000/gold
# TIME_RANGE: what the dashboard shows at first, in Superset's words, such as "Last day"; by default all there is
set -euo pipefail

assets=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/assets" && pwd -P)
uri=${1:-hive://127.0.0.1:10000/gold}
time_range=${2:-No filter}

# What was given is text to sed, not a pattern.
as_text() { sed 's/[\\&#]/\\&/g' <<<"$1"; }

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
(cd "$assets" && find . -name '*.yaml') | while read -r file; do
  mkdir -p "$copy/$(dirname "$file")"
  sed -E -e "s#^sqlalchemy_uri: .*#sqlalchemy_uri: $(as_text "$uri")#" \
    -e "s#^( *)(time_range|value): No filter\$#\\1\\2: $(as_text "$time_range")#" \
    "$assets/$file" >"$copy/$file"
done
superset import-directory --overwrite "$copy"
