# What is installed serves someone else's project, and the examples run.
add_test(NAME install_and_examples COMMAND ${PROJECT_SOURCE_DIR}/tests/install/run.sh
  ${PROJECT_BINARY_DIR} $<TARGET_FILE:focus_program>)
set_tests_properties(install_and_examples PROPERTIES LABELS install COST 90 TIMEOUT 600
  ENVIRONMENT "${focus_test_environment}")
add_test(NAME configure_alike COMMAND ${PROJECT_SOURCE_DIR}/tests/install/configure.sh
  ${PROJECT_BINARY_DIR}/configure_test)
set_tests_properties(configure_alike PROPERTIES LABELS install TIMEOUT 300)
