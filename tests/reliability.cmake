# What must not be lost, whatever fails: some cases of each kind; FOCUS_CAMPAIGN=long takes them all.
if(NOT FOCUS_SANITIZE MATCHES thread)  # tsan.sh; its library wants to be the first that is loaded
  focus_test(reliability_tests STARTS_PROGRAMS
    SOURCES reliability/*_test.cpp
    NEEDS apps
    LABELS reliability
    SHARDS 2)
  add_dependencies(reliability_tests focus_program)
  if(FOCUS_SANITIZE)
    target_compile_definitions(reliability_tests PRIVATE FOCUS_SANITIZED)
  endif()
  if(MPI_C_FOUND)
    target_compile_definitions(reliability_tests PRIVATE FOCUS_MPIEXEC="${MPIEXEC_EXECUTABLE}")
  endif()
  target_link_libraries(reliability_tests PRIVATE PkgConfig::ARCHIVE)
  # Loaded before the C library into the program that is tried.
  foreach(name fault trace clock)
    add_library(focus_${name} MODULE ${PROJECT_SOURCE_DIR}/tests/reliability/${name}_library.cpp)
    target_compile_features(focus_${name} PRIVATE cxx_std_20)
    target_include_directories(focus_${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(focus_${name} PRIVATE ${CMAKE_DL_LIBS})
    add_dependencies(reliability_tests focus_${name})
    string(TOUPPER ${name} upper)
    target_compile_definitions(reliability_tests PRIVATE
      FOCUS_${upper}_LIBRARY="$<TARGET_FILE:focus_${name}>")
  endforeach()
endif()
