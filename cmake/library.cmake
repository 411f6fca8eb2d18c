# How the targets of this project are made; nothing of this is forced on whoever links them.

configure_file(${PROJECT_SOURCE_DIR}/cmake/version.h.in
  ${PROJECT_BINARY_DIR}/generated/autograd/version.h @ONLY)

# What every target of ours is compiled with. Eigen's own threads stay off: its results depend on
# their number, while our fixed chunks around its one-thread products do not.
add_library(focus_options INTERFACE)
target_compile_options(focus_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -march=${FOCUS_ARCH} -fno-math-errno)
# The same objects are in the program and in the shared library, which shows its C interface alone.
target_compile_options(focus_options INTERFACE -fPIC -fvisibility=hidden)
# Read from a file, so that commands stay the same where a developer's tests turn it on in the build
# of a user, and nothing is compiled again.
if(FOCUS_WERROR)
  set(werror "-Werror")
endif()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/werror.rsp CONTENT "@werror@\n" @ONLY)
target_compile_options(focus_options INTERFACE "@${PROJECT_BINARY_DIR}/generated/werror.rsp")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # So that ccache can follow a precompiled header; and a source that is included by another is no
  # header, whose types must not use an unnamed namespace.
  target_compile_options(focus_options INTERFACE -fpch-preprocess -Wno-subobject-linkage)
  # The compiler collects its own garbage later: an eighth less time, a fifth more memory.
  target_compile_options(focus_options INTERFACE
    --param=ggc-min-expand=100 --param=ggc-min-heapsize=400000)
endif()
target_compile_definitions(focus_options INTERFACE EIGEN_DONT_PARALLELIZE)
target_include_directories(focus_options INTERFACE
  ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_link_libraries(focus_options INTERFACE Eigen3::Eigen OpenMP::OpenMP_CXX)
if(FOCUS_FUZZ)
  # All but the kernels (autograd/CMakeLists.txt): no input of a file's decides what they do.
  target_compile_options(focus_options INTERFACE -fsanitize=fuzzer-no-link)
  # Thirty programs to link: a second or two less for each.
  find_program(FOCUS_LLD ld.lld)
  if(FOCUS_LLD)
    target_link_options(focus_options INTERFACE -fuse-ld=lld)
  endif()
endif()
if(FOCUS_SANITIZE)
  target_compile_options(focus_options INTERFACE
    -fsanitize=${FOCUS_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(focus_options INTERFACE -fsanitize=${FOCUS_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND FOCUS_SANITIZE MATCHES address)
    # As clang does it: a library of a test's may be loaded before the sanitizers' then.
    target_link_options(focus_options INTERFACE -static-libasan -static-libubsan)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # GCC 12 finds it in its own <regex> there.
    target_compile_options(focus_options INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()

# focus_embed(<file> <name>): the text of a file as a constant, which a source includes as <file>.inc.
function(focus_embed path name)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${path})
  file(READ ${PROJECT_SOURCE_DIR}/${path} text)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/embedded.inc.in
    ${PROJECT_BINARY_DIR}/generated/${path}.inc @ONLY)
endfunction()

# focus_unity(<size> <folder>): the folder's sources are compiled <size> at a time (what each of them
# instantiates from the same headers is most of the compiler's work).
function(focus_unity size folder)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  string(REPLACE "/" "_" group ${folder})
  set(n 0)
  foreach(source ${sources})
    math(EXPR part "${n} / ${size}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group}_${part})
    math(EXPR n "${n} + 1")
  endforeach()
endfunction()

# Optimised for the compiler's time: what only parses, prints and calls. Not with clang, which refuses
# a precompiled header of another level, and whose build here is not optimised at all.
set(focus_light_options $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-O1>)

# What is loaded says which processor it needs: a lesser one gets the loader's line and no illegal
# instruction.
set(focus_processor_options)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND FOCUS_ARCH MATCHES "^x86-64-v[234]$")
  set(focus_processor_options -Wl,-z,${FOCUS_ARCH})
endif()

# What all targets have in common. The precompiled header of `precompiled`, if that is given.
function(focus_compile target)
  cmake_parse_arguments(arg "" "PRECOMPILED" "" ${ARGN})
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:focus_options>)
  if(FOCUS_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endif()
  if(arg_PRECOMPILED)
    target_precompile_headers(${target} REUSE_FROM ${arg_PRECOMPILED})
  endif()
endfunction()

# focus_sources(<variable> <folders>): the .cpp files of these folders, but not of those below them,
# without what focus_jinja has (data/CMakeLists.txt).
function(focus_sources variable)
  set(sources)
  foreach(folder ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${found})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "/main.cpp$")
  list(REMOVE_ITEM sources "" ${focus_jinja_readers})
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# focus_object_library(<target> SOURCES ... NEEDS <targets>): objects that a library is made of.
function(focus_object_library target)
  cmake_parse_arguments(arg "" "PRECOMPILED" "SOURCES;NEEDS" ${ARGN})
  add_library(${target} OBJECT ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE
    "${CMAKE_POSITION_INDEPENDENT_CODE}")
  focus_compile(${target} PRECOMPILED ${arg_PRECOMPILED})
  target_link_libraries(${target} PRIVATE ${arg_NEEDS} OpenMP::OpenMP_CXX)
endfunction()

# focus_library(<name> [FOLDERS ...] [SAME ...] [LIGHT ...] [FLOAT ...] [NEEDS <our libraries>]
# [SHOWS <packages in its headers>] [USES <other packages>] [ONE_PRECISION] PRECOMPILED <target>):
# one static library, target focus_<name>, of all sources in its folders, and its twin
# focus_<name>_f64 in which Real is double (for the tests), unless ONE_PRECISION. The four lists
# name folders, each folder in one of them:
#   FOLDERS  compiled for both
#   SAME     do not know Real: compiled once for both (tests/one_precision.sh watches over that)
#   LIGHT    compiled for both, optimised for the compiler's time: nothing in them runs for long
#   FLOAT    as LIGHT, but not in the twin: no folder of the twin's and no test of it uses them
function(focus_library name)
  cmake_parse_arguments(arg "ONE_PRECISION" "PRECOMPILED"
    "FOLDERS;SAME;LIGHT;FLOAT;NEEDS;SHOWS;USES" ${ARGN})
  focus_sources(all ${arg_FOLDERS} ${arg_SAME} ${arg_LIGHT} ${arg_FLOAT})
  focus_sources(both ${arg_FOLDERS})
  set(focus_${name}_sources ${all} PARENT_SCOPE)
  set(focus_${name}_packages ${arg_SHOWS} ${arg_USES} PARENT_SCOPE)
  if(arg_SAME)
    focus_sources(same ${arg_SAME})
    list(TRANSFORM arg_NEEDS PREPEND focus_ OUTPUT_VARIABLE needs)
    focus_object_library(focus_${name}_same PRECOMPILED ${arg_PRECOMPILED} SOURCES ${same}
      NEEDS ${arg_SHOWS} ${arg_USES} ${needs})
    list(APPEND both $<TARGET_OBJECTS:focus_${name}_same>)
  endif()
  set(suffixes "-")
  if(FOCUS_TESTS AND NOT arg_ONE_PRECISION)
    list(APPEND suffixes "_f64")
  endif()
  foreach(item ${suffixes})
    string(REPLACE "-" "" suffix "${item}")
    set(target focus_${name}${suffix})
    set(own ${both})
    set(light_folders ${arg_LIGHT})
    if(NOT suffix)
      list(APPEND light_folders ${arg_FLOAT})
    endif()
    if(light_folders)
      focus_sources(light ${light_folders})
      list(TRANSFORM arg_NEEDS REPLACE "(.+)" "focus_\\1${suffix}" OUTPUT_VARIABLE needs)
      focus_object_library(${target}_light PRECOMPILED ${arg_PRECOMPILED} SOURCES ${light}
        NEEDS ${arg_SHOWS} ${arg_USES} ${needs})
      target_compile_options(${target}_light PRIVATE ${focus_light_options})
      list(APPEND own $<TARGET_OBJECTS:${target}_light>)
    endif()
    add_library(${target} STATIC ${own})
    focus_compile(${target} PRECOMPILED ${arg_PRECOMPILED})
    target_compile_features(${target} PUBLIC cxx_std_20)
    target_link_libraries(${target} PUBLIC ${arg_SHOWS} PRIVATE ${arg_USES} OpenMP::OpenMP_CXX)
    foreach(need ${arg_NEEDS})
      target_link_libraries(${target} PUBLIC focus_${need}${suffix})
    endforeach()
    if(suffix)
      target_compile_definitions(${target} PUBLIC FOCUS_REAL_DOUBLE)
    endif()
  endforeach()
endfunction()

# What most sources include. The twins take it too: nothing in it knows Real.
set(focus_common_headers
  <algorithm> <array> <cmath> <cstddef> <cstdint> <cstring> <filesystem> <functional> <limits>
  <map> <memory> <numeric> <optional> <set> <span> <stdexcept> <string> <string_view> <utility>
  <vector> <fmt/format.h> <nlohmann/json.hpp>)
file(WRITE ${PROJECT_BINARY_DIR}/generated/precompiled.cpp.new "// Holds a precompiled header.\n")
configure_file(${PROJECT_BINARY_DIR}/generated/precompiled.cpp.new
  ${PROJECT_BINARY_DIR}/generated/precompiled.cpp COPYONLY)
add_library(focus_precompiled OBJECT ${PROJECT_BINARY_DIR}/generated/precompiled.cpp)
focus_compile(focus_precompiled)
target_link_libraries(focus_precompiled PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
target_precompile_headers(focus_precompiled PRIVATE ${focus_common_headers})
