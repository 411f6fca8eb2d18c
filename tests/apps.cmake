focus_test(apps_tests
  SOURCES apps/recipe_test.cpp apps/progress_test.cpp apps/compare_plan_test.cpp
    apps/html_report_test.cpp
    apps/attention_speed_test.cpp apps/text_stream_test.cpp data/corpus_test.cpp
  NEEDS apps data
  LABELS apps
)
