focus_test(apps_tests
  SOURCES apps/api_test.cpp apps/terminal/*_test.cpp
  NEEDS apps
  LABELS apps)
