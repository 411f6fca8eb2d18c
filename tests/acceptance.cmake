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
# focus serve as browsers see it, and as many clients of all kinds do, for some seconds.
find_package(Python3 COMPONENTS Interpreter)
if(HTTPLIB_FOUND AND Python3_FOUND)
  set(server_tests ${PROJECT_SOURCE_DIR}/tests/apps/server)
  add_test(NAME serve_page COMMAND ${Python3_EXECUTABLE} ${server_tests}/page.py
    $<TARGET_FILE:focus_program>)
  add_test(NAME serve_clients COMMAND ${Python3_EXECUTABLE} ${server_tests}/clients.py
    $<TARGET_FILE:focus_program> 10)
  set_tests_properties(serve_page serve_clients PROPERTIES
    LABELS cli SKIP_RETURN_CODE 77 ENVIRONMENT "${focus_test_environment}")
endif()
foreach(name cli_tests reference_tests stores_golden_tests)
  add_dependencies(${name} focus_program)
endforeach()
# The Python module, as it is in the tree, by a Python that has numpy.
if(TARGET focus_shared AND Python3_FOUND)
  set(python ${Python3_EXECUTABLE})
  foreach(candidate ${Python3_EXECUTABLE} /usr/bin/python3)
    execute_process(COMMAND ${candidate} -c "import numpy" RESULT_VARIABLE failed ERROR_QUIET)
    if(NOT failed)
      set(python ${candidate})
      break()
    endif()
  endforeach()
  foreach(name module_test random_calls)
    add_test(NAME python_${name} COMMAND ${python} ${PROJECT_SOURCE_DIR}/tests/python/${name}.py)
    set_tests_properties(python_${name} PROPERTIES LABELS python SKIP_RETURN_CODE 77 ENVIRONMENT
      "${focus_test_environment};PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${PROJECT_SOURCE_DIR}/apps/python;FOCUS_LIBRARY=$<TARGET_FILE:focus_shared>;FOCUS_PROGRAM=$<TARGET_FILE:focus_program>")
  endforeach()
endif()
