# The program as its users run it.
focus_test(cli_tests STARTS_PROGRAMS
  SOURCES apps/cli_*_test.cpp
  NEEDS apps
  LABELS cli
  SHARDS 4)
if(MPI_C_FOUND)
  target_compile_definitions(cli_tests PRIVATE FOCUS_MPIEXEC="${MPIEXEC_EXECUTABLE}")
endif()
if(NOT HTTPLIB_FOUND)
  target_compile_definitions(cli_tests PRIVATE FOCUS_NO_SERVER)
endif()
focus_test(reference_tests STARTS_PROGRAMS
  SOURCES apps/reference_test.cpp
  NEEDS apps
  LABELS reference
  SHARDS 2)
if(FOCUS_SANITIZE)
  target_compile_definitions(reference_tests PRIVATE FOCUS_SANITIZED)
endif()
focus_test(stores_golden_tests
  SOURCES golden/stores_golden_test.cpp
  NEEDS apps
  LABELS golden)
foreach(name cli_tests reference_tests stores_golden_tests)
  add_dependencies(${name} focus_program)
endforeach()
