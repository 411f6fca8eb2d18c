focus_test(focus_golden_tests BOTH
  SOURCES golden/focus_golden_test.cpp
  NEEDS focus
  LABELS golden)
