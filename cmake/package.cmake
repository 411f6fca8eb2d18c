# The program as a Debian package: `cmake --build --preset release --target package`, then
# `apt install ./build/release/focus_*.deb`. The library's files are not in it.
find_program(FOCUS_DPKG_SHLIBDEPS dpkg-shlibdeps)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the authors of focus <focus@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME focus)
set(CPACK_DEBIAN_PROGRAM_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
if(FOCUS_DPKG_SHLIBDEPS)  # of dpkg-dev: it finds the packages that the program's libraries are in
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
include(CPack)
