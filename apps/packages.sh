# shellcheck shell=bash
# Sourced by apps/quickstart.sh and tests/run.sh: installs what is missing of the Debian packages
# that the program needs, with `install_packages test` those of the tests too, with `mpi` those for
# several processes, with `interop` Python for tests/interop, with `bench` those of the benchmarks,
# with `coverage` what tests/coverage.sh adds to the tests'.
# The fuzzers' compiler and the libraries that are only compared with may be missing.

# Those of the given packages that are not installed, into `missing`.
find_missing() {
  local package
  missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
      missing+=("$package")
  done
}

apt_install() {
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  echo "installing: $*"
  "${as_root[@]}" apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq \
      --no-install-recommends "$@" >/dev/null
}

install_packages() {
  local wanted=(
    g++ cmake ninja-build pkg-config
    libeigen3-dev libfmt-dev libspdlog-dev libyaml-cpp-dev libhdf5-dev libcli11-dev
    nlohmann-json3-dev libpcre2-dev libicu-dev libxxhash-dev libsentencepiece-dev
    libarchive-dev libcpp-httplib-dev
  )
  local optional=() missing
  case "${1:-}" in
    test)
      wanted+=(libgtest-dev libgmock-dev librapidcheck-dev)
      optional=(clang lld libclang-rt-dev libomp-dev clang-format clang-tidy libopenmpi-dev openmpi-bin locales
        python3 python3-numpy)
      ;;
    mpi) wanted+=(libopenmpi-dev openmpi-bin) ;;
    interop) wanted+=(python3 python3-venv) ;;
    coverage) wanted+=(libgtest-dev libgmock-dev librapidcheck-dev gcovr) ;;
    bench)
      wanted+=(libbenchmark-dev python3 python3-venv)
      optional=(libopenblas-openmp-dev libdnnl-dev)
      ;;
  esac
  find_missing "${wanted[@]}"
  [ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"
  find_missing "${optional[@]}"
  [ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}" || echo "continuing without: ${missing[*]}"
}
