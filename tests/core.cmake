focus_test(focus_golden_tests BOTH
  SOURCES golden/focus_golden_test.cpp
  NEEDS focus
  LABELS golden)
focus_test(model_golden_tests BOTH
  SOURCES golden/arch_golden_test.cpp golden/training_golden_test.cpp
  NEEDS focus optim
  LABELS golden)
