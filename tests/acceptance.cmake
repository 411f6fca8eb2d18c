# The program as its users run it.
focus_test(cli_tests
  SOURCES
    apps/cli_import_test.cpp apps/cli_train_test.cpp apps/cli_resume_test.cpp
    apps/cli_eval_test.cpp apps/cli_export_test.cpp apps/cli_generate_test.cpp
    apps/cli_bad_input_test.cpp apps/cli_bad_file_test.cpp apps/cli_speed_test.cpp
    apps/cli_compare_test.cpp apps/cli_lora_test.cpp apps/cli_rivals_test.cpp
    apps/cli_two_phase_test.cpp
    apps/cli_tokenizer_test.cpp
  NEEDS apps
  LABELS cli)
focus_test(reference_tests
  SOURCES apps/cli_reference_test.cpp
  NEEDS apps
  LABELS reference)
foreach(name cli_tests reference_tests)
  add_dependencies(${name} focus_program)
  # One run at a time: they start programs of their own, and some of them wait for signals.
  set_tests_properties(${name} PROPERTIES RUN_SERIAL ON TIMEOUT 900)
endforeach()
