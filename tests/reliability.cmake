# What must not be lost, whatever fails: some cases of each kind; FOCUS_CAMPAIGN=long takes them all.
if(NOT FOCUS_SANITIZE)  # the sanitizers' own library wants to be the first that is loaded
  add_library(focus_faults MODULE ${PROJECT_SOURCE_DIR}/tests/reliability/fault_library.cpp)
  target_compile_features(focus_faults PRIVATE cxx_std_20)
  target_link_libraries(focus_faults PRIVATE ${CMAKE_DL_LIBS})
  focus_test(reliability_tests
    SOURCES reliability/*_test.cpp
    NEEDS apps
    LABELS reliability)
  target_compile_definitions(reliability_tests PRIVATE
    FOCUS_FAULT_LIBRARY="$<TARGET_FILE:focus_faults>")
  add_dependencies(reliability_tests focus_program focus_faults)
  set_tests_properties(reliability_tests PROPERTIES RUN_SERIAL ON TIMEOUT 900)
endif()
