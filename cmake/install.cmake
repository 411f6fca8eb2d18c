# What others take of this project: the targets focus::focus (all of it), focus::autograd,
# focus::data, focus::jinja, focus::layers and focus::optim, whether it is installed
# (find_package(focus)) or part of their build, and headers that are all below one folder: the
# tree's "autograd/variable.h" is their <focus/autograd/variable.h>, "focus/method/config.h" their
# <focus/method/config.h>.
set(libraries autograd data jinja layers optim focus)
set(headers)
foreach(folder autograd data layers optim focus)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
    ${PROJECT_SOURCE_DIR}/${folder}/*.h)
  list(APPEND headers ${found})
endforeach()
# These show packages that nobody else should have to have, or (tokenizer_steps.h) call an inner
# thing what the library calls another.
list(REMOVE_ITEM headers autograd/eigen.h data/files/hdf5.h data/tensors/store_scan.h
  data/tokenizers/tokenizer_steps.h)

# The interpreter of chat templates shows these two alone.
list(FILTER headers EXCLUDE REGEX "data/chat/jinja/")
list(APPEND headers data/chat/jinja/budget.h data/chat/jinja/template.h)

set(public ${PROJECT_BINARY_DIR}/include)
set(made)
foreach(header ${headers} autograd/version.h)
  string(REGEX REPLACE "^focus/" "" header ${header})
  list(APPEND made ${public}/focus/${header})
endforeach()
list(TRANSFORM headers PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE needed)
add_custom_command(OUTPUT ${made}
  COMMAND ${CMAKE_COMMAND} "-DHEADERS=${headers}" -DFROM=${PROJECT_SOURCE_DIR}
    -DGENERATED=${PROJECT_BINARY_DIR}/generated -DTO=${public}/focus
    -P ${PROJECT_SOURCE_DIR}/cmake/headers.cmake
  DEPENDS ${needed} ${PROJECT_BINARY_DIR}/generated/autograd/version.h
    ${PROJECT_SOURCE_DIR}/cmake/headers.cmake
  COMMENT "Headers as others include them" VERBATIM)
add_custom_target(focus_headers ALL DEPENDS ${made})

foreach(name ${libraries})
  set_target_properties(focus_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(focus_${name} INTERFACE $<INSTALL_INTERFACE:include>)
  # In one build the tree's own headers and these must not meet.
  add_library(focus_public_${name} INTERFACE)
  target_link_libraries(focus_public_${name} INTERFACE focus_${name})
  target_include_directories(focus_public_${name} SYSTEM INTERFACE ${public})
  add_dependencies(focus_public_${name} focus_headers)
  add_library(focus::${name} ALIAS focus_public_${name})
endforeach()

if(NOT FOCUS_INSTALL)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/focus)
list(TRANSFORM libraries PREPEND focus_ OUTPUT_VARIABLE targets)
install(TARGETS ${targets} EXPORT focus)
if(TARGET focus_shared)
  install(TARGETS focus_shared)
endif()
install(EXPORT focus NAMESPACE focus:: DESTINATION ${folder} FILE focusTargets.cmake)
install(DIRECTORY ${public}/focus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set(FOCUS_FIND_PACKAGES)
foreach(package ${focus_packages})
  string(APPEND FOCUS_FIND_PACKAGES "find_dependency(${package})\n")
endforeach()
string(REPLACE ";" " " FOCUS_FIND_MODULES "${focus_modules}")
configure_package_config_file(cmake/focusConfig.cmake.in
  ${PROJECT_BINARY_DIR}/generated/focusConfig.cmake INSTALL_DESTINATION ${folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/focusConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/focusConfig.cmake
  ${PROJECT_BINARY_DIR}/generated/focusConfigVersion.cmake DESTINATION ${folder})
