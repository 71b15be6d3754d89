#!/bin/sh
# Makes .venv with the given extras, and sees to bubblewrap, the jail that judged programs run in.
# Usage: setup.sh EXTRAS    Environment: PYTHON (3.11 or newer; default python3)
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "corrgrpo-gym needs Python 3.11 or newer; $python is $("$python" -V 2>&1). Try: make PYTHON=python3.12 ..." >&2
    exit 1
}
[ -x .venv/bin/python ] || "$python" -m venv .venv || {
    echo "could not make .venv; on Debian and Ubuntu: apt install python3-venv" >&2
    exit 1
}
.venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$1]"
case ",$1," in
# The suites alone: what the package asks for besides is 290 MB of model SDKs that they do not use.
*,agentdojo,*) .venv/bin/pip install --quiet --disable-pip-version-check --no-deps agentdojo==0.1.35 ;;
esac

if [ "$(uname)" = Linux ] && ! command -v bwrap >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing bubblewrap"
        (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq bubblewrap) >/dev/null
    else
        echo "note: bubblewrap is missing; programs that models write are judged in its jail." >&2
        echo "      Install it with your package manager, such as: sudo apt install bubblewrap" >&2
    fi
fi
