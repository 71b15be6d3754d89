#!/bin/sh
# Makes .venv with the given extras, and sees to bubblewrap, the jail that judged programs run in; with dev also
# to a container engine, for the tests.
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

# install PROGRAM PACKAGE WHAT-FOR: as root on Debian and its kin; elsewhere a note says what is missing.
install() {
    command -v "$1" >/dev/null && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing $2"
        (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2") \
            >/dev/null
    else
        echo "note: $2 is missing; $3" >&2
        echo "      Install it with your package manager, such as: sudo apt install $2" >&2
    fi
}

if [ "$(uname)" = Linux ]; then
    install bwrap bubblewrap "programs that models write are judged in its jail."
    case ",$1," in
    *,dev,*) # The tests start an engine of their own as root; as another user they need a running one.
        PATH=$PATH:/usr/sbin:/sbin install dockerd docker.io "the tests of sandbox 'docker' fail without an engine."
        [ "$(id -u)" = 0 ] || docker version >/dev/null 2>&1 ||
            echo "note: no container engine can be reached; the tests of sandbox 'docker' fail without one." >&2
        ;;
    esac
fi
