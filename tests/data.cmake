focus_test(data_tests
  SOURCES data/tokenizer_test.cpp data/tokenizer_file_test.cpp data/text_test.cpp
          data/published_split_test.cpp data/bpe_trainer_test.cpp
          data/token_file_test.cpp data/batches_test.cpp
  NEEDS data GTest::gmock
  LABELS data)
focus_test(tokenizer_golden_tests
  SOURCES data/tokenizer_golden_test.cpp
  NEEDS data GTest::gmock
  LABELS golden)
