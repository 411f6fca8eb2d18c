focus_test(apps_tests
  SOURCES apps/terminal/*_test.cpp
  NEEDS apps
  LABELS apps)
