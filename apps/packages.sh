# Sourced by apps/quickstart.sh and tests/run.sh: installs what is missing of the Debian packages
# that the program needs, and with `install_packages test` those of the tests too.

install_packages() {
  local wanted=(
    g++ cmake ninja-build pkg-config
    libeigen3-dev libfmt-dev libspdlog-dev libyaml-cpp-dev libhdf5-dev libcli11-dev
    nlohmann-json3-dev libpcre2-dev libicu-dev libxxhash-dev libsentencepiece-dev liblzma-dev
  )
  if [ "${1:-}" = test ]; then
    wanted+=(libgtest-dev libgmock-dev librapidcheck-dev)
  fi
  local missing=() package
  for package in "${wanted[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  echo "installing: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
