# The program as its users run it.
focus_test(cli_tests
  SOURCES apps/cli_*_test.cpp
  NEEDS apps
  LABELS cli)
if(MPI_C_FOUND)
  target_compile_definitions(cli_tests PRIVATE FOCUS_MPIEXEC="${MPIEXEC_EXECUTABLE}")
endif()
focus_test(reference_tests
  SOURCES apps/reference_test.cpp
  NEEDS apps
  LABELS reference)
foreach(name cli_tests reference_tests)
  add_dependencies(${name} focus_program)
  # One run at a time: they start programs of their own, and some of them wait for signals.
  set_tests_properties(${name} PROPERTIES RUN_SERIAL ON TIMEOUT 900)
endforeach()
