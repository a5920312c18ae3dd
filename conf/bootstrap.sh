# shellcheck shell=bash
# Sourced by spark-submit.sh and run-tests.sh: finds Python and Java, and keeps a virtual environment equal to its lock
# file. Needs bash 3.2 and nothing else, so that it also runs on a bare machine and on macOS.

say() { printf 'groupledger: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

# python_version PYTHON: "3.11", or nothing when it does not run (a pyenv shim of a version that is not selected).
python_version() {
  "$1" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

# find_python: sets $python to a Python 3.10 to 3.14 that can make virtual environments.
find_python() {
  local candidate version found=""
  local candidates=(python3 python3.13 python3.12 python3.11 python3.10 python3.14)
  if [[ -n ${PYTHON:-} ]]; then candidates=("$PYTHON"); fi
  for candidate in "${candidates[@]}"; do
    version=$(python_version "$candidate") || continue
    case $version in
      3.10 | 3.11 | 3.12 | 3.13 | 3.14) ;;
      *) found+="${found:+, }Python $version ($candidate)"; continue ;;
    esac
    # Debian splits ensurepip off into a package of its own.
    if "$candidate" -I -c 'import ensurepip, venv' 2>/dev/null; then
      python=$candidate
      return
    fi
    found+="${found:+, }Python $version without venv ($candidate; Debian: apt install python$version-venv)"
  done
  fail "needs Python 3.10 to 3.14; found ${found:-none${PYTHON:+ at PYTHON=$PYTHON}}." \
    "Install one (Debian: apt install python3 python3-venv; macOS: brew install python@3.13) or set PYTHON to its path."
}

# java_major HOME: "17", or nothing. The file "release" answers without starting a JVM.
java_major() {
  local line version=""
  [[ -x $1/bin/java ]] || return 1
  if [[ -r $1/release ]]; then
    while IFS= read -r line || [[ -n $line ]]; do
      if [[ $line == JAVA_VERSION=* ]]; then version=${line#*=}; fi
    done <"$1/release"
  else
    version=$("$1/bin/java" -version 2>&1 | sed -n 's/.*version "\([^"]*\)".*/\1/p' | head -n 1) || return 1
  fi
  version=${version//\"/}
  version=${version#1.} # Java 8 called itself 1.8
  version=${version%%[!0-9]*}
  [[ -n $version ]] && printf '%s\n' "$version"
}

# find_java: exports JAVA_HOME of a Java that Spark 4 supports.
find_java() {
  local home major on_path found=""
  local homes=()
  if [[ -n ${JAVA_HOME:-} ]]; then homes+=("$JAVA_HOME"); fi
  if on_path=$(command -v java) && on_path=$(readlink -f "$on_path"); then homes+=("${on_path%/bin/java}"); fi
  homes+=(/usr/lib/jvm/* /usr/java/* /opt/java/* /opt/homebrew/opt/openjdk@* /usr/local/opt/openjdk@*
    /Library/Java/JavaVirtualMachines/*/Contents/Home "${HOME:-/nonexistent}"/.sdkman/candidates/java/*)
  for home in "${homes[@]}"; do
    major=$(java_major "$home") || continue
    case $major in
      17 | 21) export JAVA_HOME=$home; return ;;
    esac
    if [[ $found != *"($home)"* ]]; then found+="${found:+, }Java $major ($home)"; fi
  done
  fail "needs Java 17 or 21; found ${found:-none}." \
    "Install one (Debian: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17) or set JAVA_HOME to it."
}

# venv_is_ready VENV LOCK: made of this lock file, complete, and by the Python that is asked for.
# The copy of the lock is written last, so it is missing after an interrupted setup.
venv_is_ready() {
  local version
  cmp -s "$2" "$1/requirements.lock" || return 1
  version=$(python_version "$1/bin/python") || return 1 # its base Python was removed
  [[ -d $1/lib/python$version/site-packages ]] || return 1 # its base Python became another version
  [[ -z ${PYTHON:-} || $(python_version "$PYTHON") == "$version" ]]
}

# take_lock WAITING_MESSAGE: locks file descriptor 9. The lock belongs to the open file, so it outlives the Python that
# took it, and is held until this shell and what it started (a pip left behind by a kill) are gone. macOS has no
# flock(1).
take_lock() {
  local flock='import fcntl, sys; fcntl.flock(9, fcntl.LOCK_EX | (fcntl.LOCK_NB if "now" in sys.argv else 0))'
  if ! "$python" -I -c "$flock" now 2>/dev/null; then
    say "$1"
    "$python" -I -c "$flock"
  fi
}

# ensure_venv VENV LOCK SIZE: makes VENV from LOCK, unless it is there; says SIZE ("450 MB") before the download.
ensure_venv() {
  local venv=$1 lock=$2 size=$3 log=$1.log reason
  if venv_is_ready "$venv" "$lock"; then return; fi
  find_python
  if ! { exec 9>>"$venv.lock"; } 2>/dev/null; then fail "cannot write $venv.lock: make ${venv%/*} writable."; fi
  take_lock "another run is setting up $venv; waiting for it ..."
  if ! venv_is_ready "$venv" "$lock"; then
    say "setting up $venv with Python $(python_version "$python"): $size to download, once," \
      "which takes some minutes (progress: $log) ..."
    rm -f "$venv/requirements.lock"
    rm -rf "$venv"
    if ! {
      "$python" -I -m venv "$venv" &&
        "$venv/bin/python" -I -m pip install --disable-pip-version-check --no-input --require-hashes -r "$lock"
    } >"$log" 2>&1 </dev/null; then
      reason=$(grep -iE '^ *(error|[a-z]*error):' "$log" | tail -n 1) || reason="see the log"
      fail "setting up $venv failed: ${reason#ERROR: } (all output: $log). Repair that and run again."
    fi
    cp "$lock" "$venv/requirements.lock.new"
    mv "$venv/requirements.lock.new" "$venv/requirements.lock"
  fi
  exec 9>&-
}
