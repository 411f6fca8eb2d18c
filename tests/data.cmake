focus_test(data_tests
  SOURCES data/chat/*_test.cpp data/settings/*_test.cpp data/synthetic/*_test.cpp
    data/text/*_test.cpp data/tokenizers/*_test.cpp data/tokens/*_test.cpp
  NEEDS data GTest::gmock
  LABELS data)
focus_test(jinja_tests
  SOURCES data/chat/jinja/*_test.cpp
  NEEDS jinja
  LABELS data)
focus_test(tokenizer_golden_tests
  SOURCES golden/tokenizer_golden_test.cpp
  NEEDS data GTest::gmock
  LABELS golden)
focus_test(chat_golden_tests
  SOURCES golden/chat_golden_test.cpp
  NEEDS data
  LABELS golden)
focus_test(files_tests BOTH
  SOURCES data/files/*_test.cpp data/gguf/*_test.cpp data/tensors/*_test.cpp
  NEEDS data GTest::gmock
  LABELS data)
