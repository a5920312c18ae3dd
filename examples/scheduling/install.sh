#!/usr/bin/env bash
# Puts groupledger into /opt/groupledger of a machine that has just been started: a bootstrap action of EMR, an init
# script of Databricks. GROUPLEDGER_GIT says where from, GROUPLEDGER_VERSION which branch or tag.
set -euo pipefail

home=${GROUPLEDGER_HOME:-/opt/groupledger}
as_root=()
if [[ $(id -u) -ne 0 ]]; then as_root=(sudo); fi
# EMR's own Python is too old.
if command -v dnf >/dev/null; then "${as_root[@]}" dnf install -y -q git python3.11; fi
"${as_root[@]}" mkdir -p "$home"
"${as_root[@]}" chown "$(id -u)" "$home"
git clone --quiet --depth 1 --branch "${GROUPLEDGER_VERSION:-main}" \
  "${GROUPLEDGER_GIT:-https://git.example.com/groupledger.git}" "$home"
