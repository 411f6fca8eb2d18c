focus_test(apps_tests
  SOURCES apps/compare/*_test.cpp apps/terminal/*_test.cpp
  NEEDS apps
  LABELS apps)
